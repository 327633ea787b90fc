"""Who leads, and who leads after them: evenly, and nothing is copied for it."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from respool.cluster.leader_spread import even_heirs, even_leaders
from respool.model.ids import BrokerId

Name = tuple[str, int]
Replicas = dict[Name, tuple[BrokerId, ...]]


@st.composite
def replicas(draw: st.DrawFn, *, everywhere: bool = False) -> Replicas:
    """Of some topics on up to five brokers: of each partition on all of them, or on some."""
    brokers = [BrokerId(one) for one in range(1, draw(st.integers(2, 5)) + 1)]
    factor = len(brokers) if everywhere else draw(st.integers(1, len(brokers)))
    order = st.permutations(brokers).map(lambda all_of_them: tuple(all_of_them[:factor]))
    return {
        (topic, number): draw(order)
        for topic in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
        for number in range(draw(st.integers(1, 9)))
    }


def brokers_of(found: Replicas) -> set[BrokerId]:
    return {one for all_of_them in found.values() for one in all_of_them}


def unevenness(found: Replicas) -> int:
    return sum(count**2 for count in Counter(first for first, *_ in found.values()).values())


def difference(found: Replicas, brokers: set[BrokerId]) -> int:
    counts = Counter(first for first, *_ in found.values())
    numbers = [counts[one] for one in brokers]
    return max(numbers) - min(numbers)


def evened(found: Replicas) -> Replicas:
    among = brokers_of(found)
    return found | even_leaders(found, among=among, group_of=lambda name: name[0])


def test_leaders_are_handed_on_along_a_chain() -> None:
    # 1 leads too many, and shares none of them with 3, which leads nothing.
    one, two, three = map(BrokerId, (1, 2, 3))
    before = {"a": (one, two), "b": (one, two), "c": (two, three)}
    after = before | even_leaders(before, among=(one, two, three))
    assert Counter(replicas[0] for replicas in after.values()) == {one: 1, two: 1, three: 1}


def test_leaders_that_are_fixed_stay() -> None:
    one, two = BrokerId(1), BrokerId(2)
    before = {"a": (one, two), "b": (one, two)}
    assert even_leaders(before, among=(one, two), fixed=("a", "b")) == {}
    assert set(even_leaders(before, among=(one, two), fixed=("a",))) == {"b"}


@given(before=replicas())
@settings(deadline=None)
def test_groups_cost_nothing_of_how_evenly_all_are_led(before: Replicas) -> None:
    after = evened(before)
    assert {name: set(now) for name, now in after.items()} == {
        name: set(now) for name, now in before.items()
    }
    without_groups = before | even_leaders(before, among=brokers_of(before))
    assert unevenness(after) == unevenness(without_groups)
    assert evened(after) == after


@given(before=replicas(everywhere=True))
@settings(deadline=None)
def test_where_every_broker_may_lead_each_topic_is_led_evenly(before: Replicas) -> None:
    after = evened(before)
    for topic in {name[0] for name in after}:
        of_topic = {name: now for name, now in after.items() if name[0] == topic}
        assert difference(of_topic, brokers_of(before)) <= 1


def test_a_busy_topic_is_not_led_by_few_while_an_idle_one_makes_up_for_it() -> None:
    one, two = BrokerId(1), BrokerId(2)
    before: Replicas = {
        **{("busy", number): (one, two) for number in range(4)},
        **{("idle", number): (two, one) for number in range(4)},
    }
    leaders = Counter((name[0], now[0]) for name, now in evened(before).items())
    assert leaders == {("busy", 1): 2, ("busy", 2): 2, ("idle", 1): 2, ("idle", 2): 2}


@given(before=replicas())
@settings(deadline=None)
def test_who_leads_next_is_made_more_even_and_who_leads_stays(before: Replicas) -> None:
    changed = even_heirs(before, among=brokers_of(before))
    after = before | changed
    for name, now in after.items():
        assert now[0] == before[name][0]
        assert sorted(now) == sorted(before[name])
    for leader in brokers_of(before):
        tails_before, tails_after = (
            {name: now[1:] for name, now in found.items() if now[0] == leader and now[1:]}
            for found in (before, after)
        )
        assert unevenness(tails_after) <= unevenness(tails_before)
    assert even_heirs(after, among=brokers_of(before)) == {}
