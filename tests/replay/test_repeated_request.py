"""Which of several entries of one request counts, and what a finished one has copied."""

from dataclasses import replace
from typing import Any

import pytest

from respool.replay.audit import DONE, AuditEntry
from respool.replay.copy_plan import CopyPlan, Span
from respool.replay.errors import CopiedAlready
from respool.replay.repeated_request import (
    counting_entries,
    done_before,
    first_of,
    latest_of,
)
from respool.replay.request import ReplayRequest

REQUEST = ReplayRequest(topic="rides", from_text="earliest", to_text="now", into="copy", group=None)


def entry(
    name: str, *, begun_ms: int = 1, stop: int = 10, start: int = 0, **marks: Any
) -> AuditEntry:
    plan = CopyPlan(
        topic="rides",
        into="copy",
        spans={0: Span(start, stop)},
        producers={},
        source_count=1,
        target_ends={0: 0},
    )
    return AuditEntry(
        id=name,
        kind="replay",
        who="me",
        begun_ms=begun_ms,
        updated_ms=begun_ms,
        source="rides",
        target="copy",
        from_text="earliest",
        to_text="2026-11-12T08:00:00.000+00:00",
        details={"fingerprint": REQUEST.fingerprint, "plan": plan.to_document(), **marks},
    )


def done(one: AuditEntry) -> AuditEntry:
    return replace(one, state=DONE, updated_ms=one.begun_ms + 5)


def test_the_first_in_the_log_counts_whatever_the_clocks_say() -> None:
    first, second = entry("a", begun_ms=9, after=None), entry("b", begun_ms=3, after=None)
    assert counting_entries([first, second], REQUEST) == [first]
    assert first_of([first, second], REQUEST, second) == first
    assert first_of([first, second], REQUEST, first) == first
    # A starter that was killed before it removed its entry changes nothing.
    assert latest_of([first, second], REQUEST) == first


def test_one_that_was_carried_out_counts_after_compaction_moved_it_behind_the_other() -> None:
    first, second = done(entry("a", after=None)), entry("b", begun_ms=3, after=None)
    assert latest_of([second, first], REQUEST) == first


def test_entries_that_follow_different_replays_all_count() -> None:
    first, second = done(entry("a", after=None)), entry("b", begun_ms=3, after="a")
    again, old = entry("c", begun_ms=4), entry("d", begun_ms=5)
    everything = [first, second, again, old]
    assert counting_entries(everything, REQUEST) == everything
    assert latest_of(everything, REQUEST) == old


def test_a_range_that_is_copied_completely_is_done() -> None:
    whole = done(entry("a", after=None))
    for spans in ({0: Span(0, 10)}, {0: Span(4, 10)}):
        assert done_before([whole], REQUEST, spans) == whole
    assert done_before([whole], REQUEST, {0: Span(10, 12)}) is None
    assert done_before([entry("a", after=None)], REQUEST, {0: Span(0, 10)}) is None


def test_an_earlier_replay_counts_as_well_as_the_last_one() -> None:
    two = [done(entry("a", after=None)), done(entry("b", begun_ms=3, start=10, stop=12, after="a"))]
    with pytest.raises(CopiedAlready, match=r"^10 of the 13 messages .* by a, "):
        done_before(two, REQUEST, {0: Span(0, 13)})
