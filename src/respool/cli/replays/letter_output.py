"""Dead letters as people and programs see them, and their replay: of `respool dlq` and of `respool queue`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection
from respool.cli.exit_codes import ExitCode
from respool.cli.replays.replay_progress import follow_replay
from respool.model.json_bytes import bytes_to_json
from respool.model.quantities import counted
from respool.model.times import format_ms

if TYPE_CHECKING:
    from respool.client.kafka.cluster import Cluster
    from respool.replay.dead_letters import DeadLetter
    from respool.replay.letter_replay import LetterPlan
    from respool.replay.letter_source import LetterSource

    FindSource = Callable[[Cluster], LetterSource]

LETTERS_SHOWN = 20
ERROR_WIDTH = 60
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Only letters that match, such as \"respool-error-class = 'OSError'\".",
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="The newest letters of each partition.")
]
RateOption = Annotated[
    str | None,
    typer.Option("--rate", metavar="N/s", help="Maximum number of messages a second."),
]
AgainOption = Annotated[
    bool, options.flag("--again", text="Also letters that the same replay has copied before.")
]


def show_letters(
    find_source: "FindSource",
    *,
    where: str | None,
    letters_max: int,
    as_json: bool,
    connection: BrokerConnection,
) -> None:
    """Print the newest dead letters of a group that match the condition."""
    from respool.replay.dead_letters import read_letters
    from respool.replay.letter_rules import parse_letters_where

    condition = parse_letters_where(where)
    with connection.connect().cluster as cluster:
        source = find_source(cluster)
        found = read_letters(cluster, source, where=condition, letters_max=letters_max)
    _print_letters(found, has_condition=where is not None, as_json=as_json)


def plan_replay(
    find_source: "FindSource",
    *,
    to: str | None,
    where: str | None,
    rate: str | None,
    connection: BrokerConnection,
) -> "LetterPlan":
    """Plan the replays of a group's dead letters; the arguments are checked before brokers are asked.

    Raises:
        InvalidReplay: the condition or the rate is malformed.
    """
    from respool.replay.letter_replay import plan_letters
    from respool.replay.letter_rules import parse_letters_where
    from respool.replay.pace import parse_rate

    condition = parse_letters_where(where)
    parse_rate(rate)
    with connection.connect().cluster as cluster:
        return plan_letters(cluster, find_source(cluster), to=to, where=condition)


def _print_letters(found: "list[DeadLetter]", *, has_condition: bool, as_json: bool) -> None:
    if as_json:
        output.print_json({"letters": [_letter_document(one) for one in found]})
        return
    columns = ("partition", "offset", "time", "from", "attempts", "error", "message", "key")
    output.print_rows(
        output.Headings(*columns, numbers=("partition", "offset", "attempts")),
        [_letter_row(one) for one in found],
    )
    if not found:
        output.note("no dead letters match" if has_condition else "no dead letters")


def carry_out(
    plan: "LetterPlan",
    *,
    rate: str | None,
    again: bool,
    show_command: str,
    as_json: bool,
    connection: BrokerConnection,
) -> None:
    """Run the replays of a plan, one after the other. `show_command` shows the letters that are left out.

    Raises:
        InvalidReplay: the rate is malformed.
        ReplayError: a replay failed.
        typer.Exit: Ctrl-C was pressed.
    """
    from datetime import UTC, datetime

    from respool.model.seek_target import Earliest
    from respool.replay.pace import Pace, parse_rate, parse_speed
    from respool.replay.start_replay import start
    from respool.replay.time_range import TimeRange
    from respool.replay.topic_copy import CopyOptions

    # Its time begins with its replay.
    copy_options = CopyOptions(pace=Pace(speed=parse_speed("max"), rate=parse_rate(rate)))
    if plan.left_out:
        output.note(
            f"{counted(plan.left_out, 'letter')} left out: without their value, or without a readable origin; see:"
            f" {show_command}"
        )
    for topic, count in plan.missing.items():
        output.note(f"{counted(count, 'letter')} of {topic} left out: there is no such topic")
    results = []
    for request in plan.requests:
        wanted = TimeRange(since=Earliest(), to_ms=int(datetime.now(UTC).timestamp() * 1000))
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
