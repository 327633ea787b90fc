"""When an elastic topic grows and shrinks, and that it does neither too often."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.cluster.elastic import BUSY_MS, QUIET_MS, ElasticRules, ElasticTopic, Resize
from respool.model.layouts.elastic_mode import ElasticMode

MB = 1_000_000
RULES = ElasticRules(
    mode=ElasticMode.ON,
    partitions_min=2,
    partitions_max=16,
    target_bytes_per_s=5 * MB,
    pause_ms=600_000,
)
STEP_MS = 10_000


def decisions(
    topic: ElasticTopic,
    load: float | None,
    *,
    ms: int,
    since_ms: int = 0,
    active: int = 4,
    rules: ElasticRules = RULES,
) -> list[tuple[int, Resize]]:
    """What is decided in this time, each with its moment."""
    found = []
    for now_ms in range(since_ms, since_ms + ms, STEP_MS):
        decided = topic.on_load(load, active=active, rules=rules, now_ms=now_ms)
        if decided is not None:
            found.append((now_ms, decided))
    return found


def rested() -> ElasticTopic:
    """Its last change is long ago."""
    return ElasticTopic(now_ms=-10 * RULES.pause_ms)


def test_a_topic_grows_after_a_minute_above_its_target() -> None:
    first, *_ = decisions(rested(), 21 * MB, ms=2 * BUSY_MS)
    assert first[0] == BUSY_MS
    assert first[1].to == 8
    assert first[1].why == (
        "21.0 MB/s to 4 partitions for 60 s; respool.elastic.target.bytes.per.second is 5.0 MB/s; "
        "keys may move to other partitions"
    )


def test_a_topic_shrinks_after_an_hour_in_which_half_would_have_been_half_busy() -> None:
    first, *_ = decisions(rested(), 4 * MB, ms=2 * QUIET_MS)
    assert (first[0], first[1].to) == (QUIET_MS, 2)
    assert first[1].why.startswith("only 4.0 MB/s to 4 partitions for 60 min;")
    assert decisions(rested(), 5 * MB, ms=2 * QUIET_MS) == []


def test_one_look_with_less_load_begins_the_minute_again() -> None:
    topic = rested()
    assert decisions(topic, 30 * MB, ms=BUSY_MS) == []
    assert decisions(topic, 10 * MB, ms=STEP_MS, since_ms=BUSY_MS) == []
    assert decisions(topic, 30 * MB, ms=BUSY_MS, since_ms=BUSY_MS + STEP_MS) == []


def test_what_cannot_be_told_is_no_quiet() -> None:
    topic = rested()
    assert decisions(topic, 0, ms=QUIET_MS) == []
    assert decisions(topic, None, ms=STEP_MS, since_ms=QUIET_MS) == []
    assert decisions(topic, 0, ms=QUIET_MS, since_ms=QUIET_MS + STEP_MS) == []


def test_nothing_is_changed_within_a_pause() -> None:
    topic = ElasticTopic(now_ms=0)
    first, *_ = decisions(topic, 30 * MB, ms=2 * RULES.pause_ms)
    assert first[0] == RULES.pause_ms
    topic.on_changed(first[0])
    later = decisions(topic, 90 * MB, ms=2 * RULES.pause_ms, since_ms=first[0], active=8)
    assert later[0][0] == 2 * RULES.pause_ms


@pytest.mark.parametrize(("active", "load"), [(16, 900), (2, 0), (3, 0), (12, 900)])
def test_some_numbers_stay(active: int, load: int) -> None:
    """At the limits; an odd number of a topic with keys; where twice as many would be too many."""
    assert decisions(rested(), load * MB, ms=2 * QUIET_MS, active=active) == []


def test_without_keys_an_odd_number_is_halved_upwards() -> None:
    rules = replace(RULES, mode=ElasticMode.UNKEYED)
    assert decisions(rested(), 0, ms=2 * QUIET_MS, active=5, rules=rules)[0][1].to == 3
    assert "keys" not in decisions(rested(), 99 * MB, ms=QUIET_MS, rules=rules)[0][1].why


def test_a_topic_that_is_not_elastic_stays_as_it_is() -> None:
    rules = replace(RULES, mode=ElasticMode.OFF)
    assert decisions(rested(), 0, ms=2 * QUIET_MS, rules=rules) == []
    assert decisions(rested(), 99 * MB, ms=2 * QUIET_MS, rules=rules) == []


@given(
    st.lists(
        st.tuples(st.none() | st.floats(0, 200 * MB), st.integers(1, 400)), min_size=1, max_size=8
    ),
    st.sampled_from((ElasticMode.ON, ElasticMode.UNKEYED)),
    st.integers(1, 16),
)
def test_changes_are_by_factors_of_two_within_the_limits_and_never_within_a_pause(
    loads: list[tuple[float | None, int]], mode: ElasticMode, active: int
) -> None:
    rules = replace(RULES, mode=mode)
    topic, now_ms, changed_ms = ElasticTopic(now_ms=0), 0, 0
    for load, steps in loads:
        for _ in range(steps):
            now_ms += STEP_MS
            resize = topic.on_load(load, active=active, rules=rules, now_ms=now_ms)
            if resize is None:
                continue
            assert now_ms - changed_ms >= rules.pause_ms
            grown, halved = active * 2, (active + 1) // 2
            assert resize.to in (grown, halved)
            assert resize.to <= rules.partitions_max if resize.to == grown else True
            assert resize.to >= rules.partitions_min if resize.to == halved else True
            assert load is not None
            # The opposite change is not due at the same load.
            assert load <= rules.target_bytes_per_s * resize.to or resize.to == grown
            active, changed_ms = resize.to, now_ms
            topic.on_changed(now_ms)
