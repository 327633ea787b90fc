"""Groups of brokers that go away, and of coordinators that move."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cli.running import Run
from respool.cli.connection_options import BrokerConnection
from respool.cli.exit_codes import ExitCode
from respool.client.kafka.groups import GroupDescription, OffsetAndMetadata
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.group_operations import GroupOperations, GroupsUnknown, KnownGroups
from support.group_broker import NOT_COORDINATOR, GroupBroker

# In a process of its own: what goes wrong here may end it without a word of Python's.
READ = """
import sys
from respool.cli.connection_options import BrokerConnection
from respool.operate.group_operations import GroupOperations
cluster = BrokerConnection(bootstrap=sys.argv[1]).connect().cluster
for (topic, number), held in GroupOperations(cluster).committed("billing").items():
    print(topic, number, held.offset, held.metadata)
"""


@contextmanager
def groups_at(address: str) -> Iterator[GroupOperations]:
    with BrokerConnection(bootstrap=address).connect() as admin:
        yield GroupOperations(admin.cluster)


def test_reading_offsets_survives_that_their_coordinator_moves() -> None:
    with GroupBroker() as one, GroupBroker() as two:
        one.cluster = two.cluster = [one, two]
        # 1. All name the first broker, and it says NOT_COORDINATOR once.  2. It has the offsets after all.
        one.offsets["billing"] = {("rides", 0): (5, "note")}
        one.codes.append(NOT_COORDINATOR)
        done = subprocess.run(
            [sys.executable, "-c", READ, one.address],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    assert done.stdout == "rides 0 5 note\n"
    assert not one.codes


def test_what_is_noted_beside_an_offset_is_set_and_read_as_it_is() -> None:
    places = {
        ("rides", 0): OffsetAndMetadata(offset=5, metadata="note"),
        # As confluent-kafka commits it.
        ("rides", 1): OffsetAndMetadata(offset=6, metadata="note\0"),
        ("rides", 2): OffsetAndMetadata(offset=7),
    }
    with GroupBroker() as broker, groups_at(broker.address) as groups:
        groups.commit("billing", places)
        held = broker.offsets["billing"]
        assert list(held.values()) == [(5, "note"), (6, "note\0"), (7, "")]
        assert groups.committed("billing") == places


@pytest.fixture
def half() -> Iterator[GroupBroker]:
    """A broker with a group, and word of a second broker that is dead."""
    with GroupBroker() as one:
        with GroupBroker() as dead:
            one.cluster = [one, dead]
        one.offsets["billing"] = {("rides", 0): (5, "")}
        yield one


def test_groups_that_are_known_are_listed_though_one_broker_is_dead(
    half: GroupBroker, run: Run
) -> None:
    ended = run("group", "list", "--broker", half.address)
    assert ended.out == "billing\tEmpty\tclassic\n"
    assert "broker 2 did not list its groups" in ended.err
    assert "KafkaError" not in ended.err
    assert ended.code == ExitCode.FAILED
    ended = run("group", "list", "--json", "--broker", half.address)
    assert [each["group"] for each in json.loads(ended.out)["groups"]] == ["billing"]
    assert ended.code == ExitCode.FAILED


def test_a_group_that_a_dead_broker_may_have_is_not_said_to_be_missing(half: GroupBroker) -> None:
    with groups_at(half.address) as groups:
        with pytest.raises(GroupsUnknown, match="broker 2 did not list its groups"):
            groups.find("pricing")
        half.cluster = [half]
        assert groups.find("pricing") is None


def test_addresses_that_are_none_are_told_as_that(run: Run) -> None:
    with GroupBroker() as broker:
        broker.cluster = [broker]
        ended = run("group", "list", "--broker", f"{broker.address},nowhere")
        # As all other commands take it.
        assert run("group", "list", "--broker", f"{broker.address},").code == 0
    assert ended.code == ExitCode.USAGE
    assert "'nowhere' is not HOST:PORT" in ended.err


def test_lags_of_all_groups_are_told_with_one_listing(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    listings = []
    list_all = GroupOperations.list

    def counted(groups: GroupOperations) -> KnownGroups:
        listings.append(groups)
        return list_all(groups)

    monkeypatch.setattr(GroupOperations, "list", counted)
    with GroupBroker() as broker:
        broker.cluster = [broker]
        for name in ("billing", "fraud", "pricing"):
            broker.offsets[name] = {("rides", 0): (5, "")}
        monkeypatch.setattr(GroupOperations, "describe", lambda _, name: described(name))
        monkeypatch.setattr(ClusterAdmin, "topics", lambda _, **__: {})
        ended = run("group", "lag", "--broker", broker.address)
    assert ended.code == ExitCode.OK, ended.err
    assert len(listings) == 1


def described(name: str) -> GroupDescription:
    return GroupDescription(
        name=name, state="Empty", type="classic", assignor="", members=(), coordinator=("", 0)
    )
