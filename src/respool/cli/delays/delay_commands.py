"""`respool delay`: list, cancel and count messages that wait for their time."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.model.json_bytes import bytes_to_json
from respool.model.operator_errors import NotFound, OperatorError
from respool.model.quantities import counted
from respool.model.times import format_ms

if TYPE_CHECKING:
    from respool.cli.delays.delayed_messages import DelayedMessage
    from respool.client.kafka.metadata import TopicMetadata
    from respool.operate.cluster_admin import ClusterAdmin

SHOWN = 100
SEND_SECONDS = 30.0

app = typer.Typer(
    no_args_is_help=True,
    help="List, cancel and count delayed messages, which consumers do not see yet.",
)

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", parser=options.topic_name, help="The topic.", show_default=False
    ),
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition.")
]


@app.command(
    "list",
    epilog="The whole topic is read. Piped, the columns are separated by tabs: due, partition, offset, id, key, kind "
    "(once or schedule).\n\n"
    "Examples:\n"
    "  respool delay list reminders\n"
    "  respool delay list reminders --until 'tomorrow 08:00' --json",
)
@to_broker
def list_delayed(
    topic: Topic,
    *,
    partition: Partition = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only messages due by this time."),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            min=1, metavar="N", help="Maximum number of messages to show, the next ones first."
        ),
    ] = SHOWN,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """List delayed messages in the order of their delivery."""
    from respool.cli.delays.delay_options import time_ahead_ms

    until_ms = None if until is None else time_ahead_ms(until)
    cluster = connection.connect()
    found = [
        one
        for one in _find(cluster, cluster.topic(topic), partition)
        if until_ms is None or one.due_ms <= until_ms
    ]
    if as_json:
        output.print_json(
            {
                "topic": topic,
                "waiting_count": len(found),
                "messages": [*map(_document, found[:limit])],
            }
        )
        return
    rows = [
        (
            format_ms(one.due_ms),
            one.partition,
            one.offset,
            _text(one.id),
            _text(one.key),
            _kind(one),
        )
        for one in found[:limit]
    ]
    columns = ("due", "partition", "offset", "id", "key", "kind")
    output.print_rows(output.Headings(*columns, numbers=("partition", "offset")), rows)
    if len(found) > limit:
        output.note(f"{counted(len(found) - limit, 'message')} more; see --limit")
    elif not found:
        output.note("no message waits")


@app.command(
    epilog="Its producer named the message with the header respool-schedule-id.\n\n"
    "Example:\n  respool delay cancel reminders order-7"
)
@to_broker
def cancel(
    topic: Topic,
    schedule_id: Annotated[
        str, typer.Argument(metavar="ID", help="The message's id.", show_default=False)
    ],
    *,
    partition: Partition = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Cancel the delayed message with an id, in whichever partition it is."""
    cluster = connection.connect()
    key = schedule_id.encode()
    found = [one for one in _find(cluster, cluster.topic(topic), partition) if one.id == key]
    if not found:
        raise NotFound(
            f"no message with id {schedule_id!r} waits in {topic}",
            hint=f"see: respool delay list {topic}",
        )
    for one in found:
        _send_cancel(connection, topic, one)
    if as_json:
        output.print_json({"topic": topic, "messages": [*map(_document, found)]})
        return
    for one in found:
        output.note(
            f"cancelled {schedule_id}, partition {one.partition}, due {format_ms(one.due_ms)}"
        )


@app.command(
    epilog="The whole topic is read. Piped, the columns are separated by tabs: partition, waiting, schedules, next, "
    "last.\n\nExample:\n  respool delay stats reminders --json"
)
@to_broker
def stats(
    topic: Topic,
    *,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Count delayed messages by partition, and show when the next and the last are due."""
    cluster = connection.connect()
    known = cluster.topic(topic)
    found = _find(cluster, known, None)
    documents = [
        _stats_of(number, [one for one in found if one.partition == number])
        for number in sorted(known.leaders)
    ]
    if as_json:
        output.print_json({"topic": topic, "waiting_count": len(found), "partitions": documents})
        return
    rows = [
        (
            one["partition"],
            one["waiting_count"],
            one["schedule_count"],
            *(format_ms(-1 if one[name] is None else one[name]) for name in ("next_ms", "last_ms")),
        )
        for one in documents
    ]
    numbers = ("partition", "waiting", "schedules")
    output.print_rows(output.Headings(*numbers, "next", "last", numbers=numbers), rows)


def _find(
    cluster: "ClusterAdmin", topic: "TopicMetadata", partition: int | None
) -> "list[DelayedMessage]":
    from respool.cli.delays.delayed_messages import find_delayed

    if partition is not None and partition not in topic.leaders:
        raise NotFound(f"{topic.name} has no partition {partition}")
    with output.progress(f"reading {topic.name}", total=None, unit="messages") as bar:
        return find_delayed(
            cluster,
            topic,
            partitions=None if partition is None else [partition],
            on_read=bar.advance,
        )


def _send_cancel(connection: BrokerConnection, topic: str, message: "DelayedMessage") -> None:
    from respool.cli.kafka_library import make_producer, to_cli_error
    from respool.model.delays.delay_headers import CANCEL

    errors: list[Any] = []
    producer = make_producer(connection, acks="all", message_timeout_ms=int(SEND_SECONDS * 1000))
    producer.produce(
        topic,
        None,
        message.key,
        message.partition,
        headers=[(CANCEL, message.id)],
        on_delivery=lambda error, _: errors.append(error),
    )
    producer.flush(SEND_SECONDS + 1)
    if not errors:
        raise OperatorError("there was no reply, so the message may or may not be cancelled")
    if errors[0] is not None:
        raise to_cli_error(errors[0], connection.bootstrap)


def _stats_of(partition: int, found: "list[DelayedMessage]") -> dict[str, Any]:
    return {
        "partition": partition,
        "waiting_count": len(found),
        "schedule_count": sum(one.is_scheduled for one in found),
        "next_ms": found[0].due_ms if found else None,
        "last_ms": found[-1].due_ms if found else None,
    }


def _document(one: "DelayedMessage") -> dict[str, Any]:
    return {
        "due_ms": one.due_ms,
        "partition": one.partition,
        "offset": one.offset,
        "sent_ms": one.sent_ms,
        "id": bytes_to_json(one.id),
        "key": bytes_to_json(one.key),
        "kind": _kind(one),
    }


def _kind(one: "DelayedMessage") -> str:
    return "schedule" if one.is_scheduled else "once"


def _text(data: bytes | None) -> str:
    return "-" if data is None else data.decode(errors="replace")
