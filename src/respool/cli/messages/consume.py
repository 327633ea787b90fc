"""`respool consume`: read a topic from any point of its history, or as a member of a consumer group."""

import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.exit_codes import ExitCode
from respool.cli.interrupts import noticing_ctrl_c
from respool.cli.messages.consume_range import (
    RangeProgress,
    Until,
    is_empty,
    parse_start,
    parse_until,
)
from respool.cli.messages.message_format import (
    ReadMessage,
    compile_format,
    for_terminal,
    to_json_line,
)
from respool.cli.options import Isolation
from respool.model.operator_errors import NotFound, UsageError
from respool.model.quantities import counted, partition_numbers
from respool.model.seek_target import AtOffset, AtTime, Last, SeekTarget
from respool.model.times import format_ms

if TYPE_CHECKING:
    from respool.client.kafka.list_offsets import OffsetRange
    from respool.client.kafka.metadata import TopicMetadata
    from respool.operate.cluster_admin import ClusterAdmin

EPILOG = (
    "Order holds within a partition; partitions are merged as they arrive. Without --group nothing is committed and no "
    "group is joined. Piped, the value of each message is a line of its own.\n\n"
    "With --group, the members share the partitions, and each resumes at the group's committed offsets. An offset is "
    "committed after the messages before it were written (at least once): every second, at the end and by Ctrl-C.\n\n"
    "Examples:\n"
    "  respool consume rides\n"
    "  respool consume rides --follow --since '3 hours ago'\n"
    "  respool consume rides --group pricing --follow\n"
    "  respool consume rides --offset -10 --format '{offset} {key}: {value}'\n"
    "  respool consume rides --since '2 days ago' --until 1h --json | jq .key"
)


@to_broker
def consume(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC", parser=options.topic_name, show_default=False, help="The topic."
        ),
    ],
    *,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="NAME",
            help="Join this consumer group. Without a committed offset, start at the first message, or by "
            "--since, --offset earliest or --offset latest.",
        ),
    ] = None,
    from_beginning: Annotated[
        bool,
        options.flag(
            "--from-beginning",
            text="Start at the first message (the default without --follow, and with --group).",
        ),
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="N",
            help="Start at N, earliest, latest, or -N: the last N per partition.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start at a time: '3 hours ago', 'yesterday 08:00', '2026-11-12T07:00Z'.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME|OFFSET", help="Stop before this time, or before this offset."),
    ] = None,
    follow: Annotated[
        bool,
        options.flag(
            "--follow",
            "-F",
            text="Keep reading; without it, stop at the log end seen at the start.",
        ),
    ] = False,
    partitions: Annotated[
        list[int] | None,
        typer.Option(
            "--partition", "-p", min=0, metavar="N", help="Only this partition; may be repeated."
        ),
    ] = None,
    max_messages: Annotated[
        int | None,
        typer.Option("--max-messages", "-n", min=1, metavar="N", help="Stop after N messages."),
    ] = None,
    isolation: Annotated[
        Isolation,
        typer.Option(
            help="read_committed: no records of aborted transactions, and none beyond the first open one. "
            "read_uncommitted: all records."
        ),
    ] = Isolation.READ_COMMITTED,
    format_text: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="One line per message, with {topic} {partition} {offset} {timestamp} {timestamp_ms} {key} {value} "
            "and {headers}.",
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", text="One JSON object per line.")] = False,
    raw: Annotated[
        bool,
        options.flag("--raw", text="The values' bytes as they are, with nothing between them."),
    ] = False,
    connection: BrokerConnection,
) -> None:
    """Read messages: all there are, those of a time span, or all that come."""
    if sum([format_text is not None, as_json, raw]) > 1:
        raise UsageError("give only one of --format, --json and --raw")
    write = choose_writer(format_text=format_text, as_json=as_json, raw=raw)
    now = datetime.now(UTC)
    start = parse_start(
        from_beginning=from_beginning,
        offset=offset,
        since=since,
        # A new group starts at the earliest offset, so that no message is lost when a member replaces another.
        follow=follow and group is None,
        now=now,
    )
    stop = parse_until(until, now=now)
    if group is not None:
        _check_group(group, start, partitions)
    if is_empty(start, stop):
        output.note("the range is empty: it ends where it begins, or before")

    # Imported before the first request: if confluent-kafka is missing, the error says what to install.
    from respool.cli.messages.topic_reader import TopicReader, plan

    cluster = connection.connect()
    known = cluster.topic(topic)
    # Fetched before the cursors are planned: if a cursor stops before these offsets, an open transaction is the reason,
    # not records that arrived since.
    ends = cluster.ranges([known], isolation="read_uncommitted")
    shown = 0
    with noticing_ctrl_c() as ctrl_c:
        if group is None:
            chosen = _choose_partitions(cluster, known, partitions)
            cursors = plan(
                cluster, known, chosen, start=start, until=stop, follow=follow, isolation=isolation
            )
            reader = TopicReader(connection, topic, cursors, follow=follow, isolation=isolation)
        else:
            from respool.cli.messages.consume_group import GroupTopicReader

            reader = GroupTopicReader(
                connection,
                cluster,
                known,
                group,
                start=start,
                start_option=_start_option(from_beginning, offset, since),
                until=stop,
                follow=follow,
                isolation=isolation,
            )
            cursors = reader.cursors
        try:
            for messages in reader.batches(max_messages, ctrl_c):
                sys.stdout.buffer.write(b"".join(map(write, messages)))
                sys.stdout.buffer.flush()
                shown += len(messages)
        finally:
            reader.close()
    if ctrl_c.pressed or sys.stderr.isatty():
        where = ", ".join(
            f"{number}: {cursor.position}" for number, cursor in sorted(cursors.items())
        )
        output.note(
            f"{counted(shown, 'message')} from {topic}; next offset by partition {where}",
            style="dim",
        )
    if ctrl_c.pressed:
        raise typer.Exit(ExitCode.INTERRUPTED)
    _warn_of_open_transactions(cluster, known, cursors, ends, stop)


def _check_group(group: str, start: SeekTarget, partitions: list[int] | None) -> None:
    """
    Raises:
        UsageError: an option cannot be combined with a group.
    """
    if not group.strip():
        raise UsageError("--group needs a name")
    if partitions:
        raise UsageError(
            "--group and --partition exclude each other: a group assigns partitions to its members",
            hint="read one partition without the group: leave out --group",
        )
    if isinstance(start, AtOffset | Last):
        raise UsageError(
            "--group and --offset with a number exclude each other: a group continues at its committed offsets",
            hint=f"move the group with: respool group reset {group} --to-offset N (or --shift-by -N)",
        )


def _start_option(from_beginning: bool, offset: str | None, since: str | None) -> str:
    """The start option as given; empty if none was."""
    if from_beginning:
        return "--from-beginning"
    if offset is not None:
        return f"--offset {offset}"
    return "" if since is None else "--since"


def choose_writer(
    *, format_text: str | None, as_json: bool, raw: bool
) -> Callable[[ReadMessage], bytes]:
    if as_json:
        return lambda message: to_json_line(message).encode() + b"\n"
    if raw:
        return lambda message: message.value or b""
    if format_text is not None:
        formatted = compile_format(format_text)
        if output.is_terminal():
            return lambda message: for_terminal(formatted(message)).encode() + b"\n"
        return lambda message: formatted(message) + b"\n"
    if output.is_terminal():
        return pretty_writer(colour="NO_COLOR" not in os.environ)
    return lambda message: (message.value or b"") + b"\n"


def pretty_writer(*, colour: bool) -> Callable[[ReadMessage], bytes]:
    """For terminals: place and time in grey, the key in cyan, then the value."""
    grey, cyan, plain = ("\x1b[2m", "\x1b[36m", "\x1b[0m") if colour else ("", "", "")

    def write(message: ReadMessage) -> bytes:
        where = (
            f"{grey}{message.partition}:{message.offset} {format_ms(message.timestamp_ms)}{plain}"
        )
        key = f" {cyan}{for_terminal(message.key)}{plain}" if message.key is not None else ""
        value = for_terminal(message.value) if message.value is not None else f"{grey}null{plain}"
        return f"{where}{key} {value}\n".encode()

    return write


def _warn_of_open_transactions(
    cluster: "ClusterAdmin",
    topic: "TopicMetadata",
    cursors: "Mapping[int, RangeProgress]",
    ends: "Mapping[tuple[str, int], OffsetRange]",
    until: Until,
) -> None:
    """Report partitions where an open transaction ended the reading, before the end and before `until`."""
    short = {
        number: cursor.stop
        for number, cursor in sorted(cursors.items())
        # A partition added since then is not in `ends`.
        if (topic.name, number) in ends
        and cursor.is_done
        and cursor.stop is not None
        and cursor.stop < ends[topic.name, number].end
    }
    wanted: Mapping[int, int | None] = {}
    if isinstance(until, AtOffset):
        wanted = dict.fromkeys(short, until.offset)
    elif isinstance(until, AtTime) and short:
        wanted = cluster.offsets_at(topic, list(short), until.ms, isolation="read_uncommitted")
    held_back = [
        f"{number} at {stop} of {ends[topic.name, number].end}"
        for number, stop in short.items()
        if (last := wanted.get(number)) is None or last > stop
    ]
    if held_back:
        output.note(
            f"stopped before the end, at an open transaction, in partition {', '.join(held_back)}; "
            "see: respool transaction list"
        )


def _choose_partitions(
    cluster: "ClusterAdmin", topic: "TopicMetadata", wanted: list[int] | None
) -> list[int]:
    chosen = sorted(set(wanted)) if wanted else list(topic.leaders)
    missing = [number for number in chosen if number not in topic.leaders]
    if missing:
        raise NotFound(
            f"{topic.name} has no partition {missing[0]}",
            hint=partition_numbers(topic.partitions),
        )
    unled = [number for number in chosen if topic.leaders[number] is None]
    if unled:
        raise cluster.offline(topic, unled[0])
    return chosen
