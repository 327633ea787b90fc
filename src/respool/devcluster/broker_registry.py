"""The local cluster's brokers as registered in etcd: which run, which were drained or removed, which are guests.

Guests are brokers that the user started beside those of `respool cluster up`; they lose their etcd when it stops.
"""

import asyncio
from collections.abc import Collection, Iterable
from math import inf

from respool.cluster import keys
from respool.model.cluster import BrokerEndpoint, RegistryEntry
from respool.model.errors import SettingsError
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.node.etcd import connect_to_etcd
from respool.ports.metadata_store import MetadataStore, StoreUnavailable

# Brokers take up to this long to register again after an outage of etcd.
REREGISTRATION_S_MAX = 30.0


async def registered(store: MetadataStore) -> dict[BrokerId, BrokerEndpoint]:
    values = (await store.snapshot(keys.BROKERS)).values
    found = {}
    for key, stored in values.items():
        broker = BrokerId(int(key.removeprefix(keys.BROKERS)))
        found[broker] = keys.decode_broker(broker, stored.value, revision=stored.revision).endpoint
    return found


async def registry_entry(store: MetadataStore, number: int) -> RegistryEntry | None:
    """A broker's registry entry; None if it has never registered."""
    stored = await store.get(keys.registry_key(BrokerId(number)))
    return None if stored is None else keys.decode_registry(stored.value)


async def is_removed(store: MetadataStore, number: int, *, or_unknown: bool = False) -> bool:
    entry = await registry_entry(store, number)
    return or_unknown if entry is None else entry.is_removed


async def read_entry(settings: Settings, number: int) -> RegistryEntry:
    """One broker's registry entry, for a message; an empty one if etcd does not answer."""
    try:
        store = await connect_to_etcd(settings)
    except (StoreUnavailable, SettingsError):
        return RegistryEntry()
    try:
        return await registry_entry(store, number) or RegistryEntry()
    except StoreUnavailable:
        return RegistryEntry()
    finally:
        await store.close()


class GuestBrokers:
    def __init__(self) -> None:
        # The guests at the last check that found any, and the time of that check.
        self.seen: dict[BrokerId, BrokerEndpoint] = {}
        self._seen_at_s = -inf
        # Broker epochs of our own brokers, current and former.
        self._own_epochs: set[int] = set()

    def exclude(self, own: Iterable[BrokerEndpoint]) -> None:
        """Remember these registrations as our own brokers'."""
        self._own_epochs |= {one.epoch for one in own}

    async def are_there(self, settings: Settings, *, own: Collection[int]) -> bool:
        """True if guests run; `own` are the ids of our running brokers.

        A guest that is not registered may have lost its lease in an etcd outage and may register again soon. It counts
        as gone if it has stopped cleanly, or stays unregistered.
        """
        now_s = asyncio.get_running_loop().time()
        try:
            store = await connect_to_etcd(settings)
            try:
                found = await registered(store)
                # A killed broker of ours stays registered until its lease expires; one that lost its lease has
                # registered with a new epoch.
                self.exclude(one for number, one in found.items() if number in own)
                here = {n: one for n, one in found.items() if one.epoch not in self._own_epochs}
                if here:
                    self.seen, self._seen_at_s = here, now_s
                    return True
                entries = [await registry_entry(store, number) for number in self.seen]
            finally:
                await store.close()
        except StoreUnavailable:
            # etcd runs but is slow: unknown. Stopping etcd would stop all guests.
            self._seen_at_s = now_s
            return True
        if entries and all(one is None or one.clean_epoch is not None for one in entries):
            return False
        return now_s - self._seen_at_s < REREGISTRATION_S_MAX
