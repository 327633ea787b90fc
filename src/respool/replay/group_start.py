"""A replay for a group: a new consumer group that begins at an old offset and knows where to stop.

Nothing is copied. The group's offsets are set to the start of the span; the metadata of each offset has the end of the
span and the replay's id. The group's consumers stop there by themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import (
    GroupDescription,
    OffsetAndMetadata,
    commit_offsets,
    describe_group,
    fetch_offsets,
)
from respool.client.kafka.metadata import Place
from respool.model.quantities import counted
from respool.replay.audit import DONE, FAILED, AuditEntry, AuditLog
from respool.replay.copy_plan import Span
from respool.replay.errors import GroupTaken, ReplayError, client_errors_translated
from respool.replay.request import ReplayRequest
from respool.replay.time_range import TimeRange


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStart:
    """The start of a group, by this run or an earlier one."""

    entry: AuditEntry
    spans: Mapping[int, Span]
    # Messages that the group has not read yet.
    messages_left: int
    was_done: bool


def start_group(
    cluster: Cluster,
    audit: AuditLog,
    request: ReplayRequest,
    spans: Mapping[int, Span],
    time_range: TimeRange,
    *,
    before: AuditEntry | None,
    again: bool,
) -> GroupStart:
    """Set the group's offsets, unless an earlier run has done so. `before` is the last entry of the same request.

    Raises:
        GroupTaken: the group has members, or offsets that were not set by the same replay request.
    """
    assert request.group is not None
    with client_errors_translated():
        committed = fetch_offsets(cluster, request.group)
    if committed and before is None:
        raise GroupTaken(
            f"group {request.group} has committed offsets already, and a replay leaves such groups alone",
            hint="name a new group; or move this one: respool group reset --to-time",
        )
    if before is not None and committed and not again:
        before_spans = _spans_of(before)
        return _started(before, before_spans, committed, was_done=True)
    with client_errors_translated():
        _check_empty(describe_group(cluster, request.group))
    entry = AuditEntry.begin(
        kind="replay",
        source=request.topic,
        target=f"group {request.group}",
        from_text=time_range.from_text,
        to_text=time_range.to_text,
        messages=sum(span.messages for span in spans.values()),
        details={
            "fingerprint": request.fingerprint,
            "wish": request.to_document(),
            "spans": {str(number): list(span) for number, span in spans.items()},
        },
    )
    audit.write(entry)
    places = {
        (request.topic, number): OffsetAndMetadata(offset=span.start, metadata=_note(entry, span))
        for number, span in spans.items()
    }
    try:
        with client_errors_translated():
            commit_offsets(cluster, request.group, places)
    except ReplayError as error:
        audit.write(entry.updated(state=FAILED, outcome=error.message))
        raise
    entry = entry.updated(state=DONE, outcome=f"group {request.group} begins there")
    audit.write(entry)
    return _started(entry, spans, places, was_done=False)


def _started(
    entry: AuditEntry,
    spans: Mapping[int, Span],
    committed: Mapping[Place, OffsetAndMetadata],
    *,
    was_done: bool,
) -> GroupStart:
    left = 0
    for number, span in spans.items():
        place = committed.get((entry.source, number))
        left += max(0, span.stop - max(place.offset if place else span.start, span.start))
    return GroupStart(entry=entry, spans=spans, messages_left=left, was_done=was_done)


def _note(entry: AuditEntry, span: Span) -> str:
    """The metadata of an offset: `int(note.split()[1])` is the end, with every client.

    The zero byte is for librdkafka, which copies metadata without a terminator, and for its bindings, which read it up
    to a zero byte: otherwise they show the memory behind it, or fail to decode it. The number comes second, separated
    by spaces, so that clients that show the zero byte can parse it in the same way.
    """
    return f"until {span.stop} of respool-replay {entry.id}\0"


def _check_empty(group: GroupDescription) -> None:
    if group.members:
        clients = ", ".join(member.client_id for member in group.members)
        raise GroupTaken(
            f"group {group.name} has {counted(len(group.members), 'member')} ({clients})",
            hint="name a new group, or stop its consumers",
        )


def _spans_of(entry: AuditEntry) -> dict[int, Span]:
    return {int(number): Span(*span) for number, span in entry.details["spans"].items()}
