"""`respool transaction abort`: end an open transaction on behalf of its producer; this cannot be undone.

A transaction that its coordinator knows is ended by fencing its producer: the coordinator aborts it everywhere, and
the producer gets PRODUCER_FENCED. A hanging one, which no coordinator knows, is ended in the partition itself.
"""

import shlex
import time
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.output import confirm
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from respool.model.quantities import counted, partition_numbers

if TYPE_CHECKING:
    from respool.client.kafka.metadata import Place
    from respool.client.kafka.transactions import TransactionDescription
    from respool.operate.cluster_admin import ClusterAdmin
    from respool.operate.transaction_operations import HangingTransaction, TransactionOperations

EPILOG = (
    "With an ID: its producer is fenced, as if a new one with its transactional.id had started, and its transaction is "
    "aborted in every partition. Without: a transaction that hangs (see: respool transaction hanging) is ended in one "
    "partition, named by its first offset there.\n\n"
    "Examples:\n"
    "  respool transaction abort billing-1\n"
    "  respool transaction abort --topic rides --partition 0 --start-offset 4711"
)

THROWS_AWAY = "aborting a transaction discards its records"


@to_broker
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="The transactional id.", show_default=False),
    ] = None,
    *,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            parser=options.topic_name,
            help="The topic of a hanging transaction.",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", "-p", min=0, metavar="N", help="The partition of a hanging transaction."
        ),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="The first offset of a hanging transaction in that partition."
        ),
    ] = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Abort an open transaction: its records are discarded, and read_committed readers continue."""
    place = (topic, partition, start_offset)
    if transactional_id is not None:
        if place != (None, None, None):
            raise UsageError(
                "give an ID, or --topic, --partition and --start-offset of one that hangs"
            )
    elif topic is None or partition is None or start_offset is None:
        raise UsageError(
            "which transaction? Give its ID, or --topic, --partition and --start-offset of one that hangs",
            hint="see: respool transaction list; respool transaction hanging",
        )

    cluster = connection.connect()
    if transactional_id is not None:
        _abort_known(cluster, transactional_id, yes=yes, as_json=as_json)
        return
    assert topic is not None
    assert partition is not None
    assert start_offset is not None
    _abort_hanging(cluster, (topic, partition), start_offset, yes=yes, as_json=as_json)


def command_for(hanging: "HangingTransaction") -> str:
    """The command that ends this transaction."""
    from respool.operate.transaction_operations import HangingReason

    if hanging.why is HangingReason.OVERDUE and hanging.transaction is not None:
        return shlex.join(["respool", "transaction", "abort", hanging.transaction.transactional_id])
    write = hanging.write
    return (
        f"respool transaction abort --topic {shlex.quote(write.topic)} --partition {write.partition} "
        f"--start-offset {write.start_offset}"
    )


def _abort_known(cluster: "ClusterAdmin", name: str, *, yes: bool, as_json: bool) -> None:
    from respool.operate.transaction_operations import TransactionOperations

    transactions = TransactionOperations(cluster.cluster)
    found = transactions.get(name)
    if found.is_decided:
        outcome = found.state.removeprefix("Prepare").lower()
        raise OperatorError(
            f"the transaction of {name} has been decided ({outcome}) and is being ended in "
            f"{_spelled(found)}; nothing can change that",
            hint="if it stays so, a partition cannot be written: see the broker's log",
        )
    if not found.is_open:
        if as_json:
            output.print_json(_document(found, aborted=False))
        output.note(f"{name} has no open transaction ({found.state}); nothing was changed")
        return
    question = (
        f"{name} has a transaction open in {_spelled(found)}. "
        "Abort it? Its records are discarded, and its producer must start again."
    )
    if not yes:
        confirm(question, why=THROWS_AWAY)
    epoch = transactions.fence(found)
    if as_json:
        output.print_json(_document(found, aborted=True))
        return
    output.note(
        f"aborted the transaction of {name} in {_spelled(found)}; its producer {found.producer_id} with epoch "
        f"{found.producer_epoch} is fenced (the epoch is {epoch} now)"
    )


def _abort_hanging(
    cluster: "ClusterAdmin", place: "Place", start_offset: int, *, yes: bool, as_json: bool
) -> None:
    from respool.operate.transaction_operations import (
        HangingReason,
        TransactionOperations,
        find_hanging,
    )

    topic, number = place
    known = cluster.topic(topic)
    if number not in known.leaders:
        raise NotFound(
            f"{topic} has no partition {number}", hint=partition_numbers(known.partitions)
        )
    transactions = TransactionOperations(cluster.cluster)
    write = next(
        (
            one.write
            for one in find_hanging(transactions, [place], now_ms=_now_ms())
            if one.write.start_offset == start_offset and one.why is not HangingReason.OVERDUE
        ),
        None,
    )
    if write is None:
        raise _not_hanging(transactions, place, start_offset)
    question = f"Abort what producer {write.producer_id} wrote to {topic}/{number} from offset {start_offset} on?"
    if not yes:
        confirm(question, why=THROWS_AWAY)
    transactions.abort_in_partition(write)
    if as_json:
        output.print_json(
            {
                "topic": topic,
                "partition": number,
                "start_offset": start_offset,
                "producer_id": write.producer_id,
                "producer_epoch": write.producer_epoch,
                "aborted": True,
            }
        )
        return
    output.note(
        f"aborted the transaction of producer {write.producer_id} in {topic}/{number} from offset {start_offset} on"
    )


def _not_hanging(
    transactions: "TransactionOperations", place: "Place", start_offset: int
) -> OperatorError:
    from respool.operate.transaction_operations import owners_of

    topic, number = place
    opened = transactions.open_in([place])
    write = next((one for one in opened if one.start_offset == start_offset), None)
    owner = None
    if write is not None:
        owner = owners_of(transactions, [write]).get(write.producer_id)
    if owner is not None:
        # Ended only here, it could still be committed in its other partitions.
        return OperatorError(
            f"the transaction in {topic}/{number} from offset {start_offset} is known to its coordinator: it is "
            f"{owner.state}, of {owner.transactional_id}",
            hint=f"end it everywhere with: respool transaction abort {shlex.quote(owner.transactional_id)}",
        )
    if place in transactions.unasked:
        return OperatorError(f"{topic}/{number} could not be asked: {transactions.unasked[place]}")
    others = ", ".join(str(one.start_offset) for one in opened)
    return NotFound(
        f"no transaction that is open in {topic}/{number} begins at offset {start_offset}",
        hint=f"those open there begin at {others}" if others else "none is open there",
    )


def _document(found: "TransactionDescription", *, aborted: bool) -> dict[str, object]:
    return {
        "transactional_id": found.transactional_id,
        "aborted": aborted,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "partitions": [{"topic": topic, "partition": number} for topic, number in found.partitions],
    }


def _spelled(found: "TransactionDescription") -> str:
    return counted(len(found.partitions), "partition")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
