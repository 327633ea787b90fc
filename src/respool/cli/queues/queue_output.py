"""Share groups as people and programs see them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from respool.cli import output
from respool.model.json_bytes import bytes_to_json
from respool.model.quantities import counted
from respool.model.times import format_ms

if TYPE_CHECKING:
    from respool.client.kafka.metadata import Place
    from respool.client.kafka.share_group_admin import ShareProgress
    from respool.operate.queue_operations import DescribedQueue, ListedQueue
    from respool.replay.waiting_messages import WaitingMessage

VALUE_WIDTH = 60


def print_queues(found: "Sequence[ListedQueue]", *, as_json: bool) -> None:
    if as_json:
        output.print_json(
            {
                "queues": [
                    {
                        "group": one.group.name,
                        "state": one.group.state,
                        "topics": one.topics,
                        "lag": one.lag,
                    }
                    for one in found
                ]
            }
        )
        return
    rows = [(one.group.name, one.group.state, one.lag, ", ".join(one.topics)) for one in found]
    output.print_rows(output.Headings("group", "state", "lag", "topics", numbers=("lag",)), rows)


def print_queue(found: "DescribedQueue", *, as_json: bool) -> None:
    if as_json:
        output.print_json(_queue_document(found))
        return
    from respool.operate.group_operations import format_places

    group = found.group
    members = [
        (one.client_id, one.host, format_places(one.partitions), one.member_id)
        for one in group.members
    ]
    partitions = [
        (topic, number, start.offset, start.lag)
        for (topic, number), start in sorted(found.starts.items())
    ]
    settings = list(found.settings.items())
    if not output.is_terminal():
        # All lines have the same shape: the group, the kind of line, then its fields.
        for kind, rows in (
            ("state", [(group.state,)]),
            ("member", members),
            ("partition", partitions),
            ("setting", settings),
        ):
            output.print_rows(output.Headings(), [(group.name, kind, *row) for row in rows])
        return
    output.print_heading(f"share group {group.name}")
    output.print_line(
        f"{group.state}; {counted(len(members), 'member')}; {counted(found.lag, 'message')} not finished"
    )
    if members:
        output.print_rows(output.Headings("client id", "host", "reads", "member id"), members)
    if partitions:
        columns = ("topic", "partition", "start", "lag")
        output.print_rows(output.Headings(*columns, numbers=columns[1:]), partitions)
    if settings:
        output.print_rows(output.Headings("setting", "value"), settings)


def print_created(
    group: str, settings: Mapping[str, str], offsets: "Mapping[Place, int]", *, as_json: bool
) -> None:
    if as_json:
        output.print_json(
            {
                "group": group,
                "settings": dict(settings),
                "partitions": [
                    {"topic": topic, "partition": number, "start_offset": offset}
                    for (topic, number), offset in sorted(offsets.items())
                ],
            }
        )
        return
    for name, value in settings.items():
        output.note(f"{name} = {value}")
    for (topic, number), offset in sorted(offsets.items()):
        output.note(f"starts at offset {offset} of {topic}/{number}")
    output.note(f"created {group}")


def print_messages(found: "Sequence[WaitingMessage]", *, as_json: bool) -> None:
    if as_json:
        output.print_json({"messages": [_message_document(one) for one in found]})
        return
    columns = ("topic", "partition", "offset", "time", "key", "value")
    rows = [
        (
            one.topic,
            one.partition,
            one.record.offset,
            format_ms(one.record.timestamp),
            _text(one.record.key),
            _text(one.record.value),
        )
        for one in found
    ]
    output.print_rows(output.Headings(*columns, numbers=columns[1:3]), rows)
    if not found:
        output.note("no messages")


def _queue_document(found: "DescribedQueue") -> dict[str, object]:
    return {
        "group": found.group.name,
        "state": found.group.state,
        "lag": found.lag,
        "members": [
            {
                "client_id": one.client_id,
                "host": one.host,
                "member_id": one.member_id,
                "partitions": [
                    {"topic": topic, "partition": number} for topic, number in one.partitions
                ],
            }
            for one in found.group.members
        ],
        "partitions": [
            _partition_document(place, start) for place, start in sorted(found.starts.items())
        ],
        "dead_letter_topic": found.dead_letter_topic,
        "settings": dict(found.settings),
    }


def _partition_document(place: "Place", start: "ShareProgress") -> dict[str, object]:
    topic, number = place
    return {
        "topic": topic,
        "partition": number,
        "start_offset": start.offset,
        "lag": start.lag,
    }


def _message_document(one: "WaitingMessage") -> dict[str, object]:
    record = one.record
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": bytes_to_json(record.key),
        "value": bytes_to_json(record.value),
        "headers": [[name, bytes_to_json(value)] for name, value in record.headers],
    }


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data[: VALUE_WIDTH + 1].decode(errors="backslashreplace")
    return text if len(text) <= VALUE_WIDTH else f"{text[:VALUE_WIDTH]}..."
