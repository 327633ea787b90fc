"""A member's acknowledgements of one share partition: all of them are applied, or none. Pure."""

from collections.abc import Sequence

from respool.coordination.share.acknowledged_ranges import AcknowledgedRange, AcknowledgeType
from respool.coordination.share.in_flight import HELD, RecordRun
from respool.coordination.share.share_state import ACKNOWLEDGED, ARCHIVED, AVAILABLE
from respool.coordination.share.transitions import Transitions
from respool.model.errors import InvalidRequest
from respool.model.share.share_errors import InvalidRecordState


def apply_acknowledgements(
    transitions: Transitions, member: str, ranges: Sequence[AcknowledgedRange], *, now_ms: int
) -> None:
    """
    Raises:
        InvalidRequest: some records never were acquired, or the group's members may not renew.
        InvalidRecordState: the member does not hold some of the records. Nothing has changed.
    """
    window = transitions.window
    for one in ranges:
        _check(transitions, member, one)
    for one in ranges:
        first = max(one.first, window.start)
        for part_first, part_last, run in window.between(first, one.last):
            _apply(transitions, (part_first, part_last, run), one.type, now_ms=now_ms)
    transitions.advance_start()


def _check(transitions: Transitions, member: str, one: AcknowledgedRange) -> None:
    window = transitions.window
    if one.last >= window.end:
        raise InvalidRequest(
            f"offset {one.last} was never acquired: the last one is {window.end - 1}"
        )
    if one.type is AcknowledgeType.RENEW and not transitions.settings.renew_enabled:
        raise InvalidRequest("share.renew.acknowledge.enable is false for this group")
    # Below the start everything is finished: a retry, which is answered as before.
    for first, last, run in window.between(max(one.first, window.start), one.last):
        if run.state == HELD:
            assert run.lock is not None
            if run.lock.member == member:
                continue
            why = "another member holds them"
        elif _is_repeated(run, one.type) or _is_late(run, member, one.type):
            continue
        else:
            why = "this member does not hold them"
        raise InvalidRecordState(f"offsets {first} to {last}: {why}")


def _apply(
    transitions: Transitions,
    part: tuple[int, int, RecordRun],
    kind: AcknowledgeType,
    *,
    now_ms: int,
) -> None:
    first, last, run = part
    if run.is_finished:
        return
    if kind is AcknowledgeType.ACCEPT:
        transitions.accept(first, last, run)
    elif kind is AcknowledgeType.GAP:
        transitions.archive(first, last, run)
    elif kind is AcknowledgeType.RELEASE:
        transitions.make_available(first, last, run, now_ms=now_ms)
    elif kind is AcknowledgeType.REJECT:
        transitions.end(first, last, run, is_rejected=True)
    else:
        transitions.renew(first, last, run, now_ms=now_ms)


def _is_repeated(run: RecordRun, kind: AcknowledgeType) -> bool:
    """The record is finished as the acknowledgement says."""
    if run.state == ACKNOWLEDGED:
        return kind is AcknowledgeType.ACCEPT
    return run.state == ARCHIVED and kind is AcknowledgeType.GAP


def _is_late(run: RecordRun, member: str, kind: AcknowledgeType) -> bool:
    """The member's lock has ended, and nobody has acquired the record since."""
    return (
        kind is AcknowledgeType.ACCEPT
        and run.state == AVAILABLE
        and run.lock is not None
        and run.lock.member == member
    )
