"""Limits the TLS handshakes per second, in total and per network. A handshake costs most of a millisecond."""

from collections import OrderedDict
from collections.abc import Callable

from respool.pacing.failure_delays import network_of
from respool.pacing.token_bucket import TokenBucket

NETWORKS_MAX = 10_000
# Clients time out after about this time.
WAIT_S_MAX = 8.0


class HandshakeTurnsPerSecond:
    def __init__(
        self, *, per_s: int, per_network_per_s: int, monotonic_ms: Callable[[], int]
    ) -> None:
        self._all = TokenBucket(rate_per_s=per_s)
        self._per_network_per_s = per_network_per_s
        self._monotonic_ms = monotonic_ms
        # The least recently used first.
        self._networks: OrderedDict[str, TokenBucket] = OrderedDict()

    def reserve_s(self, host: str) -> float | None:
        """Reserve a turn: return how long to wait for it, or None if that would take too long."""
        now_ms = self._monotonic_ms()
        network = network_of(host)
        own = self._networks.pop(network, None) or TokenBucket(rate_per_s=self._per_network_per_s)
        self._networks[network] = own
        if len(self._networks) > NETWORKS_MAX:
            self._networks.popitem(last=False)
        # Earlier connections have reserved their turns already, so turns are first come, first served.
        wait_s = max(one.seconds_until(1, now_ms=now_ms) for one in (own, self._all))
        if wait_s > WAIT_S_MAX:
            return None
        own.take(1, now_ms=now_ms)
        self._all.take(1, now_ms=now_ms)
        return wait_s
