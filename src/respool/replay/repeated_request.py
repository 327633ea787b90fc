"""The same request for a copy twice: at the same moment, or again when its copy is done. Pure.

Starters have no lock between them. Each records which replay it follows (`details["after"]`: the id, or None for the
first of its request). If several entries follow the same replay, the first one in the audit log counts:

1. a starter writes its entry and reads the log again;
2. if its entry is the one that counts, it copies;
3. otherwise it removes its entry and joins the replay that counts.

Every reader of the log decides alike, so it does not matter when, or whether, the entries of the others are removed.
An entry without `after` was asked for with `--again`, or is older than this rule; it always counts.
"""

from collections.abc import Iterable, Mapping

from respool.model.quantities import counted
from respool.replay.audit import DONE, AuditEntry
from respool.replay.copy_plan import CopyPlan, Span
from respool.replay.errors import CopiedAlready
from respool.replay.request import ReplayRequest

AFTER = "after"


def counting_entries(
    in_log_order: Iterable[AuditEntry], request: ReplayRequest
) -> list[AuditEntry]:
    """The entries of this request that count, in the order they began."""
    alike = [one for one in in_log_order if one.details.get("fingerprint") == request.fingerprint]
    # Compaction moves an entry that was updated behind one that was not. Only one that counts is ever updated.
    alike.sort(key=lambda one: one.updated_ms == one.begun_ms)
    followed: set[str | None] = set()
    found = []
    for one in alike:
        if AFTER in one.details:
            if one.details[AFTER] in followed:
                continue
            followed.add(one.details[AFTER])
        found.append(one)
    return sorted(found, key=lambda one: one.begun_ms)


def latest_of(in_log_order: Iterable[AuditEntry], request: ReplayRequest) -> AuditEntry | None:
    """The last replay with the same request."""
    counting = counting_entries(in_log_order, request)
    return counting[-1] if counting else None


def first_of(
    in_log_order: Iterable[AuditEntry], request: ReplayRequest, entry: AuditEntry
) -> AuditEntry:
    """The entry that counts among `entry` and those that were begun at the same moment."""
    counting = counting_entries(in_log_order, request)
    rivals = [one for one in counting if one.details.get(AFTER, "") == entry.details[AFTER]]
    return rivals[0] if rivals else entry


def done_before(
    in_log_order: Iterable[AuditEntry], request: ReplayRequest, spans: Mapping[int, Span]
) -> AuditEntry | None:
    """The replay of the same request that has copied all of these spans; None if none has copied any message of them.

    Raises:
        CopiedAlready: one has copied a part of them.
    """
    wanted = sum(span.messages for span in spans.values())
    most, most_entry = 0, None
    for entry in counting_entries(in_log_order, request):
        if entry.state != DONE:
            continue
        done = CopyPlan.from_document(entry.details["plan"]).spans
        shared = _shared(done, spans)
        if done == spans or shared == wanted > 0:
            return entry
        if shared > most:
            most, most_entry = shared, entry
    if most_entry is None:
        return None
    raise CopiedAlready(
        f"{most:,} of the {counted(wanted, 'message')} in this range were replayed into {most_entry.target} already, "
        f"by {most_entry.id}, which ended at {most_entry.to_text}",
        hint=f"to continue there: --from '{most_entry.to_text}', from Python since={most_entry.to_text!r}; "
        "to copy the whole range once more: --again, from Python again=True",
    )


def not_copied_yet(
    in_log_order: Iterable[AuditEntry], request: ReplayRequest, held: Mapping[int, Span]
) -> dict[int, Span]:
    """The offsets beyond the ends of all finished replays of the same request."""
    starts = {number: span.start for number, span in held.items()}
    for entry in counting_entries(in_log_order, request):
        if entry.state == DONE:
            for number, span in CopyPlan.from_document(entry.details["plan"]).spans.items():
                starts[number] = max(starts.get(number, 0), span.stop)
    return {
        number: Span(min(starts[number], span.stop), span.stop) for number, span in held.items()
    }


def _shared(some: Mapping[int, Span], others: Mapping[int, Span]) -> int:
    """The number of offsets in both."""
    return sum(
        Span(max(span.start, some[number].start), min(span.stop, some[number].stop)).messages
        for number, span in others.items()
        if number in some
    )
