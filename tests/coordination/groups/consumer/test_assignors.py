from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordination.consumer_world import topic_id
from coordination.group_world import FUZZ
from respool.coordination.groups.consumer.assignors import (
    ASSIGNORS,
    Assignor,
    Shares,
    Subscriber,
    assign_range,
    assign_uniform,
)
from respool.coordination.groups.consumer.partition_sets import PartitionSet, count, difference
from respool.model.ids import TopicId

EXAMPLES = 5_000 if FUZZ else 60

T1, T2, T3 = topic_id(1), topic_id(2), topic_id(3)
both_assignors = pytest.mark.parametrize("assign", list(ASSIGNORS.values()), ids=list(ASSIGNORS))


def same(*member_ids: str, topics: tuple[TopicId, ...] = (T1,)) -> dict[str, Subscriber]:
    return {member_id: Subscriber(frozenset(topics)) for member_id in member_ids}


def going_on(
    members: Mapping[str, Subscriber], shares: Mapping[str, PartitionSet]
) -> dict[str, Subscriber]:
    """The same members, each with what it got last time."""
    return {
        member_id: member._replace(assigned=shares.get(member_id, {}))
        for member_id, member in members.items()
    }


def loads(shares: Shares) -> dict[str, int]:
    return {member_id: count(partitions) for member_id, partitions in shares.items()}


def moved(before: Shares, after: Shares) -> int:
    """How many partitions that somebody had are somebody else's now."""
    return sum(
        count(difference(partitions, after.get(member_id, {})))
        for member_id, partitions in before.items()
    )


# --- what both promise

topics_in_play = st.dictionaries(
    st.sampled_from([T1, T2, T3]), st.integers(1, 9), min_size=1, max_size=3
)
members_in_play = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(6)]),
    st.builds(
        Subscriber,
        st.frozensets(st.sampled_from([T1, T2, T3])),
        # Leftovers of any kind: of topics not subscribed to, gone, or given to others too.
        st.dictionaries(
            st.sampled_from([T1, T2, T3]), st.frozensets(st.integers(0, 11), min_size=1), max_size=3
        ),
        st.none() | st.sampled_from("xyz"),
    ),
    max_size=6,
)


@both_assignors
@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(members=members_in_play, counts=topics_in_play)
def test_every_partition_of_a_subscribed_topic_goes_to_exactly_one_subscriber(
    assign: Assignor, members: dict[str, Subscriber], counts: dict[TopicId, int]
) -> None:
    shares = assign(members, counts)
    assert shares.keys() == members.keys()
    given_out = [
        (topic, partition)
        for partitions in shares.values()
        for topic, numbers in partitions.items()
        for partition in numbers
    ]
    subscribed = {topic for member in members.values() for topic in member.topic_ids}
    assert sorted(given_out) == sorted(
        (topic, partition)
        for topic, number in counts.items()
        if topic in subscribed
        for partition in range(number)
    )
    for member_id, partitions in shares.items():
        assert partitions.keys() <= members[member_id].topic_ids
        assert all(partitions.values())


@both_assignors
def test_nobody_and_nothing_can_be_shared_out(assign: Assignor) -> None:
    assert assign({}, {T1: 3}) == {}
    assert assign(same("ann"), {}) == {"ann": {}}
    assert assign({"ann": Subscriber(frozenset())}, {T1: 3}) == {"ann": {}}


@both_assignors
def test_the_same_question_has_the_same_answer_in_any_order(assign: Assignor) -> None:
    members = same("ann", "bob", "cid", topics=(T1, T2))
    backwards = dict(reversed(list(members.items())))
    assert assign(members, {T1: 5, T2: 2}) == assign(backwards, {T2: 2, T1: 5})


# --- uniform


@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(members=members_in_play, counts=topics_in_play)
def test_uniform_counts_of_like_subscribers_differ_by_one_at_the_most(
    members: dict[str, Subscriber], counts: dict[TopicId, int]
) -> None:
    alike = {
        member_id: member._replace(topic_ids=frozenset(counts))
        for member_id, member in members.items()
    }
    numbers = loads(assign_uniform(alike, counts)).values()
    assert not numbers or max(numbers) - min(numbers) <= 1


@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(members=members_in_play, counts=topics_in_play)
def test_uniform_counts_cannot_be_evened_out_further(
    members: dict[str, Subscriber], counts: dict[TopicId, int]
) -> None:
    """No chain of hand-overs leads from a member to one with at least two fewer."""
    shares = assign_uniform(members, counts)
    numbers = loads(shares)
    gives_to = {
        giver: {
            taker
            for topic in partitions
            for taker, member in members.items()
            if topic in member.topic_ids
        }
        for giver, partitions in shares.items()
    }
    for start in members:
        reached, waiting = {start}, [start]
        while waiting:
            for taker in gives_to[waiting.pop()] - reached:
                reached.add(taker)
                waiting.append(taker)
        assert all(numbers[start] - numbers[other] <= 1 for other in reached)


@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(members=members_in_play, counts=topics_in_play)
def test_uniform_leaves_an_even_assignment_as_it_is(
    members: dict[str, Subscriber], counts: dict[TopicId, int]
) -> None:
    shares = assign_uniform(members, counts)
    assert assign_uniform(going_on(members, shares), counts) == shares


@given(st.integers(1, 12), st.integers(1, 40), st.data())
def test_uniform_moves_no_more_than_a_member_that_comes_or_goes_makes_necessary(
    size: int, partitions: int, data: st.DataObject
) -> None:
    ids = [f"m{n:02}" for n in range(size)]
    counts = {T1: partitions}
    before = assign_uniform(same(*ids), counts)
    comer = data.draw(st.sampled_from(["a", "m05x", "z"]))
    after = assign_uniform(going_on(same(*ids, comer), before), counts)
    assert moved(before, after) == count(after[comer])
    goer = data.draw(st.sampled_from(ids))
    stayers = going_on(same(*(one for one in ids if one != goer)), before)
    left = assign_uniform(stayers, counts)
    assert moved({one: before[one] for one in stayers}, left) == 0


def test_uniform_spreads_each_topic_over_the_members() -> None:
    shares = assign_uniform(same("ann", "bob", topics=(T1, T2)), {T1: 2, T2: 2})
    assert all(len(numbers) == 1 for one in shares.values() for numbers in one.values())


def test_uniform_hands_partitions_on_over_a_member_between() -> None:
    # Ann and Cid have no topic in common: what Ann has too much can only go to Bob, and Bob's to Cid.
    members = {
        "ann": Subscriber(frozenset({T1}), {T1: frozenset(range(4))}),
        "bob": Subscriber(frozenset({T1, T2}), {T2: frozenset(range(2))}),
        "cid": Subscriber(frozenset({T2})),
    }
    assert loads(assign_uniform(members, {T1: 4, T2: 2})) == {"ann": 2, "bob": 2, "cid": 2}


# --- range


def test_range_gives_the_same_numbers_of_topics_with_the_same_count() -> None:
    shares = assign_range(same("ann", "bob", topics=(T1, T2)), {T1: 3, T2: 3})
    assert shares == {
        "ann": {T1: frozenset({0, 1}), T2: frozenset({0, 1})},
        "bob": {T1: frozenset({2}), T2: frozenset({2})},
    }


def test_range_puts_static_members_first_in_the_order_of_their_instance_ids() -> None:
    members = {
        "a": Subscriber(frozenset({T1})),
        "b": Subscriber(frozenset({T1}), instance_id="y"),
        "c": Subscriber(frozenset({T1}), instance_id="x"),
    }
    shares = assign_range(members, {T1: 3})
    assert [min(shares[one][T1]) for one in ("c", "b", "a")] == [0, 1, 2]


@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(members=members_in_play, counts=topics_in_play)
def test_range_gives_runs_whose_lengths_differ_by_one_at_the_most(
    members: dict[str, Subscriber], counts: dict[TopicId, int]
) -> None:
    shares = assign_range(members, counts)
    for topic in counts:
        runs = [
            shares[one].get(topic, frozenset())
            for one in members
            if topic in members[one].topic_ids
        ]
        assert all(max(a) - min(a) == len(a) - 1 for a in runs if a)
        assert all(abs(len(a) - len(b)) <= 1 for a, b in combinations(runs, 2))
