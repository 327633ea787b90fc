"""When refused connections mean that a broker is dead, and when not."""

from hypothesis import given
from hypothesis import strategies as st

from respool.cluster.liveness import REFUSALS_MIN, SUSPECTED_TIMES, RefusedConnections

DEAD_AFTER_MS = 1_000


def reached() -> RefusedConnections:
    refusals = RefusedConnections(dead_after_ms=DEAD_AFTER_MS)
    refusals.on_reached()
    return refusals


def refuse(refusals: RefusedConnections, *times_ms: int) -> None:
    for now_ms in times_ms:
        refusals.on_refused(now_ms=now_ms)


def test_refused_for_long_enough_is_dead() -> None:
    refusals = reached()
    refuse(refusals, 5_000, 5_500, 5_999)
    assert not refusals.is_dead(now_ms=5_999)
    refuse(refusals, 6_000)
    assert refusals.is_dead(now_ms=6_000)


def test_one_that_was_never_reached_is_not_dead_however_long_it_refuses() -> None:
    refusals = RefusedConnections(dead_after_ms=DEAD_AFTER_MS)
    refuse(refusals, *range(0, 60_000, 100))
    assert not refusals.is_dead(now_ms=60_000)


def test_one_that_takes_a_connection_in_between_is_not_dead() -> None:
    refusals = reached()
    refuse(refusals, 0, 300, 600)
    refusals.on_reached()
    refuse(refusals, 900, 1_200, 1_500)
    assert not refusals.is_dead(now_ms=1_500)


def test_silence_in_between_starts_the_time_anew() -> None:
    refusals = reached()
    refuse(refusals, 0, 300, 600)
    refusals.on_no_answer()
    refuse(refusals, 900, 1_200, 1_500)
    assert not refusals.is_dead(now_ms=1_500)
    refuse(refusals, 1_900)
    assert refusals.is_dead(now_ms=1_900)


def test_a_few_refusals_are_needed_for_who_asks_may_have_stood_still() -> None:
    refusals = reached()
    refuse(refusals, 0, 10_000)
    assert not refusals.is_dead(now_ms=10_000)
    refuse(refusals, 10_250)
    assert refusals.is_dead(now_ms=10_250)


def test_one_that_refuses_is_suspected_for_a_while() -> None:
    refusals = reached()
    assert not refusals.is_suspected(now_ms=0)
    refuse(refusals, 0)
    assert refusals.is_suspected(now_ms=0)
    assert refusals.is_suspected(now_ms=SUSPECTED_TIMES * DEAD_AFTER_MS - 1)
    assert not refusals.is_suspected(now_ms=SUSPECTED_TIMES * DEAD_AFTER_MS)
    refusals.on_reached()
    assert not refusals.is_suspected(now_ms=1)


def test_one_that_was_never_reached_is_not_suspected() -> None:
    refusals = RefusedConnections(dead_after_ms=DEAD_AFTER_MS)
    refuse(refusals, 0, 1, 2)
    assert not refusals.is_suspected(now_ms=2)


@given(st.lists(st.tuples(st.sampled_from("tsr"), st.integers(0, 700)), max_size=30))
def test_dead_are_those_that_refused_all_the_time_since_they_took_a_connection(
    heard: list[tuple[str, int]],
) -> None:
    refusals, now_ms = RefusedConnections(dead_after_ms=DEAD_AFTER_MS), 0
    story: list[tuple[str, int]] = []
    for what, later_ms in heard:
        now_ms += later_ms
        story.append((what, now_ms))
        if what == "t":
            refusals.on_reached()
        elif what == "s":
            refusals.on_no_answer()
        else:
            refusals.on_refused(now_ms=now_ms)
        kinds = "".join(kind for kind, _ in story)
        in_a_row = len(kinds) - len(kinds.rstrip("r"))
        is_dead = (
            "t" in kinds
            and in_a_row >= REFUSALS_MIN
            and now_ms - story[-in_a_row][1] >= DEAD_AFTER_MS
        )
        assert refusals.is_dead(now_ms=now_ms) == is_dead
