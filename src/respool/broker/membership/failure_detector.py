"""Detects that another broker's process has died, and revokes its lease before the lease expires.

```
   registered --connect--> held, unused --the connection ends--> reconnect, again ... refused long enough
                                                                    |                        |
                                                                    +-- accepted: held       +-- revoke its lease
```
A killed process's connections end at once, and its address refuses new ones (`cluster/liveness.py` says when that is
enough). Its lease is then revoked. That deletes its registration, and its controller key if it was the controller, and
other brokers take over as after an expired lease. Every broker holds a connection to every other; while nothing
happens, that costs nothing. Only the controller revokes other brokers' leases; any broker may revoke the controller's.
So a broker that refuses only one other broker, because of a firewall between the two, is not removed from the cluster.

**If it is alive after all** (its address was a proxy's that went down), it loses its registration and registers again:
it notices that its registration is gone, or its next renewal fails. Until then it may act while another broker leads in
its place, which is impossible when a lease expires by itself. Even so, nothing acknowledged is lost:

1. It commits only what every member of its ISR has fetched. The new leader comes from that ISR, so it has all of that.
2. Members that follow the new leader do not fetch from the old one, so the old one commits nothing more.
3. It cannot shrink its ISR either: that write is guarded by the partition's revision, which an election changes.
4. If its ISR was only itself before, it continues to commit; but then no other broker can be elected. The controller
   removes it from the ISR and keeps it as eligible (KIP-966), and it leads again once it is back. While others are
   eligible too, it commits nothing anyway. Unclean election, where allowed, waits for the replicas that have
   everything, and otherwise loses what an unclean election always may.
5. A controller's writes are guarded by its controller key, which disappears with the lease.
6. Its reads return committed records, though perhaps not the latest; so a consumer may see an older state for a moment.

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

# If a device in between has forgotten the connection, its end would go unnoticed.
HOLD_MS_MAX = 30_000
ASK_EVERY_MS_MAX = 250
# Connection attempts within the time after which a broker is dead.
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
        """`dead_after_ms` is 0 if no broker is to be watched."""
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
        """Watch the brokers that are registered in this image; `peers` already has their addresses."""
        before, self._image = self._image, image
        if not self._dead_after_ms or (before is not None and before.brokers is image.brokers):
            return
        # A draining broker revokes its own lease.
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
            if refusals.is_dead(now_ms=now_ms) and self._may_report(broker.id):
                await self._end_lease_of(broker)
            # After a connection that was held for long, the first reconnect follows without a pause.
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

    def _may_report(self, broker: BrokerId) -> bool:
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
            # If the broker still refuses connections, the next round tries again.
            logger.info("the lease of broker %d could not be ended: %s", broker.id, error)
