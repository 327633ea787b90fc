"""A group's offsets, while its coordinator moves from one broker to another."""

from collections.abc import Iterator

import pytest

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.groups import OffsetAndMetadata, commit_offsets, fetch_offsets
from support.group_broker import GROUP_UNAUTHORIZED, LOADING, NOT_COORDINATOR, GroupBroker

HELD = {("rides", 0): (5, "note"), ("rides", 1): (0, ""), ("fares", 2): (7, "")}
ONE, TWO = 1, 2


@pytest.fixture
def brokers() -> Iterator[tuple[GroupBroker, GroupBroker]]:
    """Both have heard that the second one coordinates; the offsets are there."""
    with GroupBroker() as one, GroupBroker() as two:
        one.cluster = two.cluster = [one, two]
        one.coordinators[0] = two.coordinators[0] = TWO
        two.offsets["billing"] = dict(HELD)
        yield one, two


def test_offsets_are_read_from_the_broker_that_the_coordinator_has_moved_to(
    brokers: tuple[GroupBroker, GroupBroker],
) -> None:
    one, two = brokers
    # 1. The first broker is asked, and is the coordinator no more.  2. The second one has the offsets.
    one.coordinators.appendleft(ONE)
    one.codes.append(NOT_COORDINATOR)
    with Cluster(one.address) as cluster:
        found = fetch_offsets(cluster, "billing")
    assert found == {place: OffsetAndMetadata(*held) for place, held in HELD.items()}
    assert one.asked.count("OffsetFetch") == two.asked.count("OffsetFetch") == 1


def test_a_coordinator_that_hangs_up_is_looked_for_anew(
    brokers: tuple[GroupBroker, GroupBroker],
) -> None:
    one, two = brokers
    one.coordinators.appendleft(ONE)
    one.codes.append(None)
    with Cluster(f"{one.address},{two.address}") as cluster:
        assert fetch_offsets(cluster, "billing").keys() == HELD.keys()


def test_a_coordinator_that_still_loads_is_waited_for(
    brokers: tuple[GroupBroker, GroupBroker],
) -> None:
    one, two = brokers
    two.codes += [LOADING, LOADING]
    with Cluster(one.address) as cluster:
        assert fetch_offsets(cluster, "billing").keys() == HELD.keys()


def test_offsets_are_committed_where_the_coordinator_has_moved_to(
    brokers: tuple[GroupBroker, GroupBroker],
) -> None:
    one, two = brokers
    one.coordinators.appendleft(ONE)
    one.codes.append(NOT_COORDINATOR)
    with Cluster(one.address) as cluster:
        places = {("rides", 0): OffsetAndMetadata(9, "note"), ("rides", 1): OffsetAndMetadata(3)}
        commit_offsets(cluster, "pricing", places)
    assert two.offsets["pricing"] == {("rides", 0): (9, "note"), ("rides", 1): (3, "")}


def test_what_was_never_committed_is_not_there(brokers: tuple[GroupBroker, GroupBroker]) -> None:
    one, two = brokers
    two.offsets["billing"] = {("rides", 0): (-1, ""), ("rides", 1): (3, "")}
    with Cluster(one.address) as cluster:
        assert fetch_offsets(cluster, "billing") == {("rides", 1): OffsetAndMetadata(3, "")}
        assert fetch_offsets(cluster, "nobody") == {}


def test_what_will_not_pass_is_told_at_once(brokers: tuple[GroupBroker, GroupBroker]) -> None:
    one, two = brokers
    two.codes.append(GROUP_UNAUTHORIZED)
    with Cluster(one.address) as cluster, pytest.raises(BrokerRefused, match="offsets of group b"):
        fetch_offsets(cluster, "billing")
