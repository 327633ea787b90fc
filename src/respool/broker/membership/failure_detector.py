"""Detects that another broker's process has died, and revokes its lease before the lease expires.

```
   registered --connect--> held, unused --the connection ends--> connect again, again ... refused long enough
                                                                    |                            |
                                                                    +-- taken: held              +-- end its lease
```
A killed process's connections end at once, and its address refuses new ones (`cluster/liveness.py` says when that is
enough). Its lease is then revoked: its registration is gone, and its controller key if it had that, and others take
over as after an expired lease. Every broker holds a connection to every other; that costs nothing while nothing
happens. Only the controller tells, and anybody tells of the controller: a broker that alone is refused by some other,
by a firewall between the two, pushes nobody out.

**If it is alive after all** (its address was a proxy's that went down), it loses its place and registers anew: it
sees that its registration is gone, or its next renewal tells it. Until then it may act while another leads in its
place, which a lease that runs out by itself never allows. Nothing that was acknowledged is lost by that:

1. It commits what every member of its ISR has fetched. Whoever is elected is of that ISR, and has it. 2. Members that
follow the new leader do not fetch from the old one, so it commits nothing more. 3. It cannot make its ISR smaller
instead: that write is guarded by the partition's revision, which an election changes. 4. If its ISR was itself alone
before, it goes on committing; but then nobody else can be elected. The controller takes it out of the ISR and keeps it
as eligible (KIP-966), and it leads again once it is back. While others are eligible too, it commits nothing anyway.
Unclean election, where allowed, waits for those who have everything, and loses what it always may. 5. A controller's
writes are guarded by its controller key, which disappears with the lease. 6. What it reads out is committed, if perhaps
not the latest; so a reader may see a moment longer what was true before.

A lease is never used twice, so revoking the one that a registration names cannot harm the registration after it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from respool.cluster import keys
from respool.cluster.liveness import RefusedConnections
from respool.model.cluster import BrokerEndpoint, ClusterImage
from respool.model.ids import BrokerId
from respool.ports.clock import Clock
from respool.ports.metadata_store import MetadataStore, StoreUnavailable
from respool.ports.peers import PeerRefused, Peers, PeerUnreachable

logger = logging.getLogger(__name__)

# A connection that something in between has forgotten would end without a word.
HOLD_MS_MAX = 30_000
ASK_EVERY_MS_MAX = 250
# So often within the time after which it is dead.
ASKS = 5


class FailureDetector:
    def __init__(
        self,
        *,
        me: BrokerId,
        dead_after_ms: int,
        store: MetadataStore,
        peers: Peers,
        clock: Clock,
        may_act: Callable[[], bool],
        spawn: Callable[[Coroutine[Any, Any, Any]], "asyncio.Task[Any]"],
    ) -> None:
        """`dead_after_ms` is 0 where nobody is to be watched."""
        self._me = me
        self._dead_after_ms = dead_after_ms
        self._store = store
        self._peers = peers
        self._clock = clock
        self._may_act = may_act
        self._spawn = spawn
        self._image: ClusterImage | None = None
        self._watched: dict[BrokerEndpoint, asyncio.Task[Any]] = {}
        # Brokers that refuse connections now. Metadata shows no leader for their partitions, so that clients retry.
        self.suspects: set[BrokerId] = set()

    def on_image(self, image: ClusterImage) -> None:
        """These are registered now, and `peers` knows where."""
        before, self._image = self._image, image
        if not self._dead_after_ms or (before is not None and before.brokers is image.brokers):
            return
        # One that is about to leave does so by itself.
        others = {
            one for one in image.brokers.values() if one.id != self._me and not one.is_draining
        }
        for gone in [one for one in self._watched if one not in others]:
            self._watched.pop(gone).cancel()
            self.suspects.discard(gone.id)
        for new in sorted(others - self._watched.keys(), key=lambda one: one.id):
            self._watched[new] = self._spawn(self._watch(new))

    async def _watch(self, broker: BrokerEndpoint) -> NoReturn:
        refusals = RefusedConnections(dead_after_ms=self._dead_after_ms)
        pause_ms = min(ASK_EVERY_MS_MAX, max(1, self._dead_after_ms // ASKS))
        while True:
            asked_at_ms = self._clock.monotonic_ms()
            try:
                await self._peers.hold(
                    broker.id,
                    on_reached=lambda: self._on_reached(broker.id, refusals),
                    ms_max=HOLD_MS_MAX,
                )
            except PeerRefused:
                refusals.on_refused(now_ms=self._clock.monotonic_ms())
            except PeerUnreachable:
                refusals.on_no_answer()
            now_ms = self._clock.monotonic_ms()
            self._note(broker.id, is_suspected=refusals.is_suspected(now_ms=now_ms))
            if refusals.is_dead(now_ms=now_ms) and self._is_mine_to_tell(broker.id):
                await self._end_lease_of(broker)
            # Whether one that was held for long is dead is asked at once.
            if now_ms - asked_at_ms < pause_ms:
                await asyncio.sleep(pause_ms / 1000)

    def _on_reached(self, broker: BrokerId, refusals: RefusedConnections) -> None:
        refusals.on_reached()
        self._note(broker, is_suspected=False)

    def _note(self, broker: BrokerId, *, is_suspected: bool) -> None:
        if is_suspected:
            self.suspects.add(broker)
        else:
            self.suspects.discard(broker)

    def _is_mine_to_tell(self, broker: BrokerId) -> bool:
        assert self._image is not None
        return self._image.controller in (self._me, broker) and self._may_act()

    async def _end_lease_of(self, broker: BrokerEndpoint) -> None:
        try:
            stored = await self._store.get(keys.broker_key(broker.id))
            if stored is None:
                return
            registration = keys.decode_broker(broker.id, stored.value, revision=stored.revision)
            if registration.endpoint != broker or registration.lease is None:
                return
            logger.warning(
                "broker %d is dead: %s:%d has refused connections for %d ms",
                broker.id,
                broker.host,
                broker.port,
                self._dead_after_ms,
            )
            await self._store.revoke_lease(registration.lease)
        except StoreUnavailable as error:
            # Still refused, it is tried again.
            logger.info("the lease of broker %d could not be ended: %s", broker.id, error)
