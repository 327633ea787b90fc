"""Which offsets of a group are set at the target, also while brokers are away."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.groups import OffsetAndMetadata
from respool.mirror.group_copier import GroupOffsetCopier, due_commits
from respool.mirror.target_topics import TopicFilter
from support.group_broker import GroupBroker

RIDES, FARES = ("rides", 0), ("fares", 0)


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset=offset, metadata="m")


def test_what_was_read_is_copied_with_its_note() -> None:
    assert due_commits({RIDES: at(5)}, {}, {RIDES: 9}) == {RIDES: at(5)}


def test_nothing_is_copied_beyond_what_the_copy_has() -> None:
    assert due_commits({RIDES: at(12)}, {}, {RIDES: 9}) == {RIDES: at(9)}


def test_nothing_goes_back_or_stays_where_it_is() -> None:
    assert due_commits({RIDES: at(5)}, {RIDES: at(5)}, {RIDES: 9}) == {}
    assert due_commits({RIDES: at(5)}, {RIDES: at(7)}, {RIDES: 9}) == {}
    assert due_commits({RIDES: at(5)}, {RIDES: at(4)}, {RIDES: 9}) == {RIDES: at(5)}


def test_offsets_of_topics_that_are_not_mirrored_stay_away() -> None:
    assert due_commits({RIDES: at(5), FARES: at(1)}, {}, {FARES: 3}) == {FARES: at(1)}


def test_topics_are_chosen_by_their_whole_names_and_never_the_brokers_own() -> None:
    wanted = TopicFilter((re.compile("rides.*"), re.compile("fares")), (re.compile(".*-test"),))
    names = ["rides", "rides-1", "rides-test", "my-rides", "fares", "fares-2"]
    assert wanted.of(names) == ["fares", "rides", "rides-1"]
    everything = TopicFilter((re.compile(".*"),))
    assert everything.of(["__consumer_offsets", "__anything", "rides"]) == ["rides"]


@contextmanager
def copier(source: GroupBroker, target: GroupBroker) -> Iterator[GroupOffsetCopier]:
    with Cluster(source.address) as here, Cluster(target.address) as there:
        yield GroupOffsetCopier(here, there, (re.compile(".*"),))


def test_groups_are_copied_while_a_broker_of_the_source_is_dead() -> None:
    with GroupBroker() as source, GroupBroker() as target, copier(source, target) as groups:
        source.offsets["billing"] = {RIDES: (5, "m")}
        assert groups.copy({RIDES: 9}).committed == {"billing": 1}
        # 1. Another broker is there.  2. It dies, and metadata still name it.  3. They name it no more.
        with GroupBroker() as dead:
            source.cluster = [source, dead]
            assert groups.copy({RIDES: 9}).failures == ""
        source.offsets["billing"] = {RIDES: (7, "m")}
        result = groups.copy({RIDES: 9})
        assert result.committed == {"billing": 1}
        assert target.offsets["billing"] == {RIDES: (7, "m")}
        assert result.failures.startswith("the source's broker 2 did not list its groups")
        assert f"{dead.address}: connection refused" in result.failures
        assert groups.copy({RIDES: 9}).failures == result.failures, "told once: it is the same"
        source.cluster = [source]
        assert groups.copy({RIDES: 9}).failures == ""


def test_a_group_that_the_target_does_not_list_is_not_set_back() -> None:
    with GroupBroker() as source, GroupBroker() as target, copier(source, target) as groups:
        with GroupBroker() as dead:
            target.cluster = [dead, target]
        target.coordinators[0] = 2
        source.offsets["billing"] = {RIDES: (5, "m")}
        target.offsets["billing"] = {RIDES: (8, "m")}
        # The second broker took over, and does not list the group yet.
        target.protocol_type = "unknown"
        result = groups.copy({RIDES: 9})
        assert result.committed == {}
        assert result.failures.startswith("the target's broker 1 did not list")
        assert target.offsets["billing"] == {RIDES: (8, "m")}
