"""Brokers that somebody started beside those of `respool cluster up`: without its etcd they would stop serving."""

import asyncio
from collections.abc import Collection, Iterable
from math import inf

from respool.cli.cluster_registry import entry_of, registered
from respool.model.cluster import BrokerEndpoint
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.node.etcd import connect_to_etcd
from respool.ports.metadata_store import StoreUnavailable

# After etcd was away, brokers take so long to register again, and more.
PATIENCE_S = 30.0


class Guests:
    def __init__(self) -> None:
        # As they were last seen, and when that was.
        self.seen: dict[BrokerId, BrokerEndpoint] = {}
        self._seen_at_s = -inf
        # By which our own brokers are registered, or were.
        self._own_epochs: set[int] = set()

    def leave_out(self, own: Iterable[BrokerEndpoint]) -> None:
        """These are none."""
        self._own_epochs |= {one.epoch for one in own}

    async def are_there(self, settings: Settings, *, own: Collection[int]) -> bool:
        """Whether there are any; `own` are the numbers of our brokers that run.

        One that is not registered may have lost its lease while etcd was away or slow, and be about to come back: it is
        gone when it has stopped cleanly, or stays away.
        """
        now_s = asyncio.get_running_loop().time()
        try:
            store = await connect_to_etcd(settings)
            try:
                found = await registered(store)
                # One of ours that was killed is registered until its lease runs out; and one that lost its lease has
                # another epoch since.
                self.leave_out(one for number, one in found.items() if number in own)
                here = {n: one for n, one in found.items() if one.epoch not in self._own_epochs}
                if here:
                    self.seen, self._seen_at_s = here, now_s
                    return True
                entries = [await entry_of(store, number) for number in self.seen]
            finally:
                await store.close()
        except StoreUnavailable:
            # It runs, and is slow to answer: nobody knows, and to end it would settle it for all of them.
            self._seen_at_s = now_s
            return True
        if entries and all(one is None or one.clean_epoch is not None for one in entries):
            return False
        return now_s - self._seen_at_s < PATIENCE_S
