"""`respool replay`: read an old range of a topic again, into another topic or for a new group."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.exit_codes import ExitCode
from respool.cli.replays.replay_progress import FollowedReplay, follow_replay
from respool.model.operator_errors import UsageError
from respool.model.quantities import counted
from respool.model.times import format_ms

if TYPE_CHECKING:
    from respool.client.kafka.cluster import Cluster
    from respool.replay.audit import AuditEntry
    from respool.replay.copy_plan import Span
    from respool.replay.handle import Replay
    from respool.replay.request import WantedHeaders

DEFAULT_COMMAND = "run"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EPILOG = (
    "Other groups are not affected: nothing is committed for them, and the topic itself is only read. Interrupted "
    "(Ctrl-C, a crash, a broker that goes away) and started again with the same arguments, a replay continues without "
    "gaps or duplicates.\n\n"
    "Examples:\n"
    "  respool replay rides --from '3 days ago' --to '2 days ago' --into again\n"
    "  respool replay rides --from '2026-11-12 08:00' --speed 10x --into rehearsal\n"
    "  respool replay rides --from 3h --keys ride-7,ride-9 --rate 500/s --into two\n"
    "  respool replay rides --from yesterday --header type=refund --into refunds\n"
    "  respool replay rides --from '1 hour ago' --group billing-check\n"
    "  respool replay list"
)


class ReplayGroup(TyperGroup):
    """`respool replay TOPIC …` means `respool replay run TOPIC …`. A topic called 'list' needs the long form."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=ReplayGroup,
    no_args_is_help=True,
    help="Play a stretch of a topic's history again: respool replay TOPIC --from TIME --to TIME --into TOPIC2.",
    epilog="respool replay TOPIC … is short for respool replay run TOPIC …; see respool replay run --help",
)


@app.command(DEFAULT_COMMAND, epilog=EPILOG)
@to_broker
def run(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            parser=options.topic_name,
            show_default=False,
            help="The topic to read.",
        ),
    ] = None,
    *,
    from_text: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="The first message of that time or later: '3 days ago', '2026-11-12 08:00', earliest.",
        ),
    ] = None,
    to_text: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TIME",
            help="Up to, not including, the first message of that time.",
            show_default="now",
        ),
    ] = None,
    into: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC2",
            parser=options.topic_name,
            help="Copy into this topic; it is created if it does not exist.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="NEW", help="Copy nothing: create a new group that begins at --from."),
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(
            metavar="1x|10x|max",
            help="1x: as far apart as the messages were; 10x: ten times faster.",
            show_default="max",
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/s", help="Maximum number of messages a second.")
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(metavar="K,...", help="Only messages with one of these keys."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="Only these keys, one on each line."
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header",
            metavar="NAME=VALUE",
            help="Only messages with this header; may be repeated: several names must all match, "
            "of one name any value.",
        ),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(CODECS), help="Compression of the copies.", show_default="none"
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Resume this replay id (replaces all other arguments)."),
    ] = None,
    again: Annotated[
        bool,
        options.flag("--again", text="Start a new replay even if the same one was begun or done."),
    ] = False,
    dry_run: Annotated[
        bool, options.flag("--dry-run", text="Show what would be replayed, and change nothing.")
    ] = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Replay what a topic held between two times: bounded, at a pace, and resumable when interrupted."""
    from respool.replay.arguments import (
        COMMAND_NAMES,
        ReplayArguments,
        ResumedReplay,
        check_arguments,
    )
    from respool.replay.pace import Pace, parse_rate, parse_speed
    from respool.replay.request import MessageFilter
    from respool.replay.start_replay import codec_of, resume_recorded, start
    from respool.replay.time_range import find_spans
    from respool.replay.topic_copy import CopyOptions

    copy_options = CopyOptions(
        pace=Pace(speed=parse_speed(speed or "max"), rate=parse_rate(rate)),
        codec=codec_of(compression, "--compression {!r}"),
    )
    copies = {
        "--speed": speed,
        "--rate": rate,
        "--compression": compression,
        "--keys": keys,
        "--key-file": key_file,
        "--header": headers or None,
    }
    arguments = ReplayArguments(
        topic=topic,
        since=from_text,
        until=to_text,
        into=into,
        group=group,
        resume=resume,
        selection=MessageFilter(keys=parse_keys(keys, key_file), headers=parse_headers(headers)),
        not_with_resume=[
            name for name, is_given in (("--again", again), ("--dry-run", dry_run)) if is_given
        ],
        not_with_group=[name for name, value in copies.items() if value is not None],
    )
    checked = check_arguments(arguments, COMMAND_NAMES, now=datetime.now(UTC))
    cluster = _connect(connection)
    if isinstance(checked, ResumedReplay):
        replay = resume_recorded(
            cluster, checked.replay_id, arguments.selection, copy_options, on_note=_on_note
        )
        _print_followed(follow_replay(replay, is_asked_for=True), as_json=as_json)
        return
    request, wanted = checked.request, checked.range
    if dry_run:
        with cluster:
            spans = find_spans(cluster, request.topic, wanted)
        if as_json:
            output.print_json(_spans_document(request.topic, spans))
        else:
            _print_spans(request.topic, spans)
        return
    replay = start(cluster, request, wanted, copy_options, again=again, on_note=_on_note)
    if group is not None:
        _print_group(replay, group, as_json=as_json)
    else:
        _print_followed(follow_replay(replay, is_asked_for=False), as_json=as_json)


@app.command(
    "list",
    epilog="Example:\n  respool replay list --json | jq '.replays[] | select(.state != \"done\")'",
)
@to_broker
def list_acts(
    as_json: options.Json = False,
    *,
    connection: BrokerConnection,
) -> None:
    """List all resets and replays: who, when, what, the range, and how each ended."""
    from respool.replay.audit import AuditLog

    with _connect(connection) as cluster:
        entries = list(AuditLog(cluster).entries().values())
    if as_json:
        output.print_json({"replays": [entry.document() for entry in entries]})
        return
    if output.is_terminal():
        for entry in entries:
            _print_entry(entry)
    else:
        _print_lines(entries)
    if not entries:
        output.note("no reset and no replay yet")


def parse_keys(keys: list[str] | None, key_file: Path | None) -> frozenset[bytes] | None:
    """`--keys a,b --keys c`, or one key per line in a file; None if neither is given.

    Raises:
        UsageError: both are given, or there are no keys.
    """
    if keys is None and key_file is None:
        return None
    if keys is not None and key_file is not None:
        raise UsageError("give only one of --keys and --key-file")
    if key_file is not None:
        found = {line.rstrip(b"\r") for line in key_file.read_bytes().split(b"\n")}
    else:
        found = {key.encode() for text in keys or () for key in text.split(",")}
    found.discard(b"")
    if not found:
        raise UsageError("no key is given")
    return frozenset(found)


def parse_headers(texts: list[str] | None) -> "WantedHeaders | None":
    """`--header a=1 --header b=2`; None if none is given.

    Raises:
        UsageError: one of them is not NAME=VALUE.
    """
    from respool.replay.request import wanted_headers

    pairs = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--header {text!r} is not NAME=VALUE")
        pairs.append((name, value.encode()))
    return wanted_headers(pairs)


def _connect(connection: BrokerConnection) -> "Cluster":
    return connection.connect().cluster


def _on_note(text: str) -> None:
    output.note(text, style="yellow" if text.endswith("trying again") else "dim")


def _print_followed(followed: FollowedReplay, *, as_json: bool) -> None:
    if as_json:
        output.print_json(followed.document)
    if followed.is_interrupted:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _print_group(replay: "Replay", group: str, *, as_json: bool) -> None:
    entry, spans, left = replay.entry, replay.spans, replay.messages_left
    if as_json:
        output.print_json(
            {
                "id": entry.id,
                "group": group,
                **_spans_document(entry.source, spans),
                "messages": left,
            }
        )
        return
    _print_spans(entry.source, spans)
    messages = counted(left, "message")
    if replay.was_done:
        output.note(
            f"replay {entry.id} has set group {group} up already; {messages} left up to its end. --again moves it "
            "back to the beginning"
        )
        return
    output.note(
        f"replay {entry.id}: a consumer with group.id={group} begins at 'from' in each partition, and has read the "
        f"replay ({messages}) when it is at 'until'; later messages are not part of it"
    )


def _spans_document(topic: str, spans: "Mapping[int, Span]") -> dict[str, object]:
    return {
        "topic": topic,
        "messages": sum(span.messages for span in spans.values()),
        "partitions": [
            {"partition": number, "from": span.start, "to": span.stop}
            for number, span in sorted(spans.items())
        ],
    }


def _print_spans(topic: str, spans: "Mapping[int, Span]") -> None:
    columns = ("topic", "partition", "from", "until", "messages")
    rows = [(topic, number, *span, span.messages) for number, span in sorted(spans.items())]
    output.print_rows(output.Headings(*columns, numbers=columns[1:]), rows)


def _print_entry(entry: "AuditEntry") -> None:
    """One block per entry: a table of eleven columns would be too wide for a terminal."""
    how = f"{entry.state}, {entry.outcome}" if entry.outcome else entry.state
    output.print_heading(f"{entry.id}  {entry.kind} of {entry.source}")
    for name, value in (
        ("begun", f"{format_ms(entry.begun_ms)} by {entry.who}"),
        ("from", entry.from_text),
        ("until", entry.to_text),
        ("to", entry.target),
        ("messages", f"{entry.messages:,}"),
        ("state", how),
    ):
        output.print_line(f"  {name:<9} {output.printable(value)}")


def _print_lines(entries: "list[AuditEntry]") -> None:
    rows = [
        (
            entry.id, entry.kind, format_ms(entry.begun_ms), entry.who, entry.source, entry.target,
            entry.from_text, entry.to_text, entry.messages, entry.state, entry.outcome,
        )
        for entry in entries
    ]  # fmt: skip
    output.print_rows(output.Headings(), rows)
