"""`respool transaction`: list, describe and abort transactions, and find those that hang."""

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output, transaction_abort
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.model.operator_errors import UsageError
from respool.model.quantities import counted
from respool.model.times import (
    format_duration_ms,
    format_ms,
)

if TYPE_CHECKING:
    from respool.client.kafka.transactions import TransactionDescription, TransactionListing
    from respool.operate.transaction_operations import HangingTransaction

app = typer.Typer(
    no_args_is_help=True, help="List, describe and abort transactions, and find those that hang."
)
app.command("abort", epilog=transaction_abort.EPILOG)(transaction_abort.abort)


@app.command(
    "list",
    epilog="Piped, the columns are separated by tabs.\n\n"
    "Examples:\n"
    "  respool transaction list | cut -f1\n"
    "  respool transaction list --state Ongoing\n"
    "  respool transaction list --open-longer-than '10 minutes'",
)
@to_broker
def list_transactions(
    *,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only those in this state, such as Ongoing or CompleteCommit; may be repeated.",
        ),
    ] = None,
    open_longer_than: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only those open for longer than this: '10 minutes'."),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option(
            "--producer-id", min=0, metavar="N", help="Only of this producer; may be repeated."
        ),
    ] = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """List transactional ids with state, producer and how long the transaction has been open."""
    open_ms = (
        None
        if open_longer_than is None
        else options.duration_ms(open_longer_than, option="--open-longer-than", at_least="0s")
    )

    from respool.client.kafka.transactions import ONGOING, PREPARED
    from respool.operate.transaction_operations import TransactionOperations

    wanted = _states(states or ())
    transactions = TransactionOperations(connection.connect().cluster)
    found = transactions.find(
        states=wanted, producer_ids=producer_ids or (), open_longer_than_ms=open_ms
    )
    opened = [one.transactional_id for one in found if one.state in (ONGOING, *PREPARED)]
    details = transactions.describe(opened)
    now_ms = _now_ms()
    if as_json:
        listed = [_listed(one, details.get(one.transactional_id)) for one in found]
        output.print_json({"transactions": listed})
        return
    names = ("transactional id", "state", "producer id", "open for", "partitions")
    rows = [_row(one, details.get(one.transactional_id), now_ms=now_ms) for one in found]
    output.print_rows(output.Headings(*names, numbers=names[2:]), rows)
    if not found:
        is_filtered = bool(wanted or producer_ids or open_ms is not None)
        output.note("no such transactions" if is_filtered else "no transactions")


@app.command(epilog="Example:\n  respool transaction describe billing-1 --json | jq .partitions")
@to_broker
def describe(
    transactional_id: Annotated[
        str, typer.Argument(metavar="ID", help="The transactional id.", show_default=False)
    ],
    *,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Show a transactional id: its state, producer, when the transaction began and its partitions."""
    from respool.operate.transaction_operations import TransactionOperations

    found = TransactionOperations(connection.connect().cluster).get(transactional_id)
    if as_json:
        output.print_json(_document(found))
        return
    name = found.transactional_id
    started = format_ms(found.started_ms) if found.started_ms is not None else None
    if not output.is_terminal():
        # All lines have the same shape: the id, the kind of line, then its fields.
        state = (found.state, found.producer_id, found.producer_epoch, found.timeout_ms, started)
        output.print_rows(output.Headings(), [(name, "state", *state)])
        places = [(name, "partition", *place) for place in found.partitions]
        output.print_rows(output.Headings(), places)
        return
    output.print_heading(f"transaction {name}")
    output.print_line(f"{found.state}{_since(found)}")
    output.print_line(
        f"producer {found.producer_id}, epoch {found.producer_epoch}; "
        f"timeout {format_duration_ms(found.timeout_ms)}"
    )
    if found.partitions:
        output.print_rows(
            output.Headings("topic", "partition", numbers=("partition",)), found.partitions
        )


@app.command(
    epilog="An open transaction blocks all read_committed readers of its partitions. One that no coordinator "
    "knows never ends by itself; end it with the command shown.\n\n"
    "Examples:\n  respool transaction hanging\n  respool transaction hanging rides --json"
)
@to_broker
def hanging(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC]",
            parser=options.topic_name,
            help="Look only in this topic; else in all.",
            show_default=False,
        ),
    ] = None,
    *,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Find transactions that are open in a partition and will never be ended."""
    from respool.operate.transaction_operations import TransactionOperations, find_hanging

    cluster = connection.connect()
    topics = [cluster.topic(topic)] if topic is not None else list(cluster.topics().values())
    places = [(each.name, number) for each in topics for number in each.leaders]
    transactions = TransactionOperations(cluster.cluster)
    found = find_hanging(transactions, places, now_ms=_now_ms())
    if as_json:
        output.print_json({"transactions": [_hanging_document(one) for one in found]})
    else:
        _print_hanging(found)
        if not found:
            output.note(f"nothing hangs in {counted(len(places), 'partition')}")
    for (name, number), why in transactions.unasked.items():
        output.note(f"{name}/{number} could not be asked: {why}")


def _print_hanging(found: "Sequence[HangingTransaction]") -> None:
    columns = (
        "topic", "partition", "start offset", "producer id", "epoch", "last write", "transactional id", "why",
    )  # fmt: skip
    rows = [
        (
            one.write.topic,
            one.write.partition,
            one.write.start_offset,
            # As text: an id gets no thousands separators.
            str(one.write.producer_id),
            one.write.producer_epoch,
            format_ms(one.write.last_ms),
            one.transaction.transactional_id if one.transaction else None,
            one.why.value,
        )
        for one in found
    ]
    if rows:
        output.print_rows(output.Headings(*columns, numbers=columns[1:5]), rows)
    # Each command once: one transaction may hang in many partitions.
    for command in dict.fromkeys(map(transaction_abort.command_for, found)):
        output.note(f"end it with: {command}")


def _hanging_document(one: "HangingTransaction") -> dict[str, object]:
    return {
        "topic": one.write.topic,
        "partition": one.write.partition,
        "start_offset": one.write.start_offset,
        "producer_id": one.write.producer_id,
        "producer_epoch": one.write.producer_epoch,
        "last_write_ms": one.write.last_ms,
        "transactional_id": one.transaction.transactional_id if one.transaction else None,
        "why": one.why.name.lower(),
        "abort_command": shlex.split(transaction_abort.command_for(one)),
    }


def _states(names: Sequence[str]) -> list[str]:
    from respool.client.kafka.transactions import STATES

    known = {state.lower(): state for state in STATES}
    unknown = [name for name in names if name.strip().lower() not in known]
    if unknown:
        raise UsageError(
            f"--state {unknown[0]!r} is not a state of transactions",
            hint=f"they are {', '.join(STATES)}",
        )
    return [known[name.strip().lower()] for name in names]


def _row(
    info: "TransactionListing", details: "TransactionDescription | None", *, now_ms: int
) -> tuple[object, ...]:
    # It may have ended between list and describe.
    shown = details if details is not None and details.is_open else None
    open_for = open_for_text(shown, now_ms=now_ms) if shown else None
    partitions = len(shown.partitions) if shown else None
    # As text: an id gets no thousands separators.
    return info.transactional_id, info.state, str(info.producer_id), open_for, partitions


def _listed(
    info: "TransactionListing", details: "TransactionDescription | None"
) -> Mapping[str, object]:
    if details is not None:
        return _document(details)
    return {
        "transactional_id": info.transactional_id,
        "state": info.state,
        "producer_id": info.producer_id,
        "producer_epoch": None,
        "timeout_ms": None,
        "started_ms": None,
        "partitions": [],
    }


def _document(found: "TransactionDescription") -> dict[str, object]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started_ms": found.started_ms,
        "partitions": [{"topic": topic, "partition": number} for topic, number in found.partitions],
    }


def _since(found: "TransactionDescription") -> str:
    if found.started_ms is None:
        return ""
    at = format_ms(found.started_ms)
    if not found.is_open:
        return f"; the last transaction began at {at}"
    return f" since {at}, for {open_for_text(found, now_ms=_now_ms())}"


def open_for_text(found: "TransactionDescription", *, now_ms: int) -> str:
    """'42s', in whole seconds; from two minutes on '7m'."""
    assert found.started_ms is not None
    seconds = max(0, now_ms - found.started_ms) // 1000
    return f"{seconds}s" if seconds < 120 else format_duration_ms(seconds // 60 * 60_000)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
