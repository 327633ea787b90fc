"""`respool dlq`: the dead letters of groups whose consumers retry."""

from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.exit_codes import ExitCode
from respool.cli.replays.replay_progress import follow_replay
from respool.model.json_bytes import bytes_to_json
from respool.model.quantities import counted
from respool.model.times import format_ms

if TYPE_CHECKING:
    from respool.replay.dead_letters import DeadLetter, GroupLetters

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, replay and purge dead letters: messages that a group could not handle.",
)

LETTERS_SHOWN = 20
ERROR_WIDTH = 60
Group = Annotated[
    str, typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False)
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Only letters that match, such as \"respool-error-class = 'OSError'\".",
    ),
]


@app.command(
    "list", epilog="Example:\n  respool dlq list --json | jq '.groups[] | select(.group == null)'"
)
@to_broker
def list_groups(as_json: options.Json = False, *, connection: BrokerConnection) -> None:
    """List the groups that retry, and how many dead letters they have.

    Topics of these names that belong to no group are listed without one: the group was renamed or deleted.
    """
    from respool.replay.dead_letters import list_letters

    with connection.connect().cluster as cluster:
        found = list_letters(cluster)
    if as_json:
        output.print_json({"groups": [_group_document(one) for one in found]})
        return
    columns = ("group", "dead letters", "topic", "retry topic")
    rows = [(one.group, one.letters, one.dead_letter_topic, one.retry_topic) for one in found]
    output.print_rows(output.Headings(*columns, numbers=columns[1:2]), rows)
    if not found:
        output.note("no group has a retry topic or dead letters")
    strays = [one for one in found if one.group is None]
    if strays:
        output.note(
            f"{counted(len(strays), 'row')} without a group: renamed, deleted, or without commits"
        )


@app.command(
    epilog="Examples:\n  respool dlq show billing\n"
    "  respool dlq show billing --where \"__dlq.errors.topic = 'rides'\"\n"
    "  respool dlq show billing --json | jq '.letters[].value'"
)
@to_broker
def show(
    group: Group,
    where: WhereOption = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, help="The newest letters of each partition.")
    ] = LETTERS_SHOWN,
    as_json: options.Json = False,
    *,
    connection: BrokerConnection,
) -> None:
    """Show a group's dead letters: where they come from, how often they failed, and why."""
    from respool.replay.dead_letters import read_letters
    from respool.replay.letter_rules import parse_letters_where

    condition = parse_letters_where(where)
    with connection.connect().cluster as cluster:
        found = read_letters(cluster, group, where=condition, letters_max=limit)
    if as_json:
        output.print_json({"letters": [_letter_document(one) for one in found]})
        return
    columns = ("partition", "offset", "time", "from", "attempts", "error", "message", "key")
    output.print_rows(
        output.Headings(*columns, numbers=("partition", "offset", "attempts")),
        [_letter_row(one) for one in found],
    )
    if not found:
        output.note("no dead letters" if where is None else "no dead letters match")


@app.command(
    epilog="Interrupted (Ctrl-C, a crash, a broker that goes away) and started again with the same arguments, a replay "
    "continues without gaps or duplicates. Started again when it is done, it copies the letters that have come "
    "since.\n\n"
    "Examples:\n"
    "  respool dlq replay billing\n"
    "  respool dlq replay billing --where \"tag = 'paid'\" --rate 100/s\n"
    "  respool dlq replay billing --to origin\n"
    "  respool dlq replay billing --to billing-archive"
)
@to_broker
def replay(
    group: Group,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="origin|TOPIC",
            help="origin: the topics they come from, where every group reads them; or any topic.",
            show_default="the group's retry topic",
        ),
    ] = None,
    where: WhereOption = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/s", help="Maximum number of messages a second.")
    ] = None,
    again: Annotated[
        bool, options.flag("--again", text="Also letters that the same replay has copied before.")
    ] = False,
    *,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Copy a group's dead letters to where they are handled again: by default for this group alone, at once."""
    from datetime import UTC, datetime

    from respool.model.seek_target import Earliest
    from respool.replay.letter_replay import plan_letters
    from respool.replay.letter_rules import parse_letters_where
    from respool.replay.pace import Pace, parse_rate, parse_speed
    from respool.replay.start_replay import start
    from respool.replay.time_range import TimeRange
    from respool.replay.topic_copy import CopyOptions

    condition = parse_letters_where(where)
    copy_rate = parse_rate(rate)
    with connection.connect().cluster as cluster:
        plan = plan_letters(cluster, group, to=to, where=condition)
    if plan.left_out:
        output.note(
            f"{counted(plan.left_out, 'letter')} left out: without their value, or without a readable origin; see:"
            f" respool dlq show {group}"
        )
    for topic, count in plan.missing.items():
        output.note(f"{counted(count, 'letter')} of {topic} left out: there is no such topic")
    results = []
    for request in plan.requests:
        wanted = TimeRange(since=Earliest(), to_ms=int(datetime.now(UTC).timestamp() * 1000))
        # Its time begins with its replay.
        copy_options = CopyOptions(pace=Pace(speed=parse_speed("max"), rate=copy_rate))
        running = start(
            connection.connect().cluster,
            request,
            wanted,
            copy_options,
            again=again,
            on_note=output.note,
        )
        results.append(follow_replay(running, is_asked_for=False))
        if results[-1].is_interrupted:
            break
    if as_json:
        output.print_json({"replays": [one.document for one in results]})
    if any(one.is_interrupted for one in results):
        raise typer.Exit(ExitCode.INTERRUPTED)


@app.command(epilog="Example:\n  respool dlq purge billing --yes")
@to_broker
def purge(
    group: Group,
    *,
    yes: Annotated[bool, options.flag("--yes", "-y", text="Do not ask.")] = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Delete all dead letters that a group has now. They cannot be replayed afterwards."""
    from respool.replay.dead_letters import letters_held, purge_letters
    from respool.replay.errors import client_errors_translated

    with connection.connect().cluster as cluster:
        with client_errors_translated():
            topic, held = letters_held(cluster, group)
        count = sum(span.messages for span in held.values())
        if not yes:
            output.confirm(
                f"Delete {counted(count, 'dead letter')} of group {group}?",
                why="purging deletes dead letters",
            )
        purge_letters(cluster, group, {number: span.stop for number, span in held.items()})
    if as_json:
        output.print_json({"group": group, "topic": topic, "messages": count})
    else:
        output.note(f"deleted {counted(count, 'dead letter')} from {topic}")


def _group_document(one: "GroupLetters") -> dict[str, object]:
    return {
        "group": one.group,
        "topic": one.dead_letter_topic,
        "retry_topic": one.retry_topic,
        "messages": one.letters,
    }


def _letter_document(letter: "DeadLetter") -> dict[str, object]:
    record, failure = letter.record, letter.failure
    return {
        "partition": letter.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "origin": None
        if failure is None
        else {"topic": failure.topic, "partition": failure.partition, "offset": failure.offset},
        "attempt_count": None if failure is None else failure.deliveries,
        "first_failed_ms": None if failure is None else failure.first_failed_at_ms,
        "error": None if failure is None else failure.error_class,
        "message": None if failure is None else failure.error_text,
        "truncated": None if failure is None else failure.truncated or None,
        "key": bytes_to_json(record.key),
        "value": bytes_to_json(record.value),
        "headers": [[name, bytes_to_json(value)] for name, value in record.headers],
    }


def _letter_row(letter: "DeadLetter") -> tuple[object, ...]:
    record, failure = letter.record, letter.failure
    key = None if record.key is None else record.key.decode(errors="backslashreplace")
    place = (letter.partition, record.offset, format_ms(record.timestamp))
    if failure is None:
        return (*place, "(unreadable)", None, None, None, key)
    origin = f"{failure.topic}/{failure.partition}/{failure.offset}"
    text = failure.error_text
    short = text if len(text) <= ERROR_WIDTH else f"{text[:ERROR_WIDTH]}..."
    return (*place, origin, failure.deliveries, failure.error_class, short, key)
