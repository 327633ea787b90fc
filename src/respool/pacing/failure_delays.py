"""How long the reply to a failed login waits: longer with each failure from the same address.

By address and never by user: otherwise strangers could lock a user out. Pure: the caller brings the time.
"""

import ipaddress
from collections import OrderedDict

ADDRESSES_MAX = 10_000
DELAY_MS_MAX = 5_000
# An address without failures for this long begins again.
FORGOTTEN_AFTER_MS = 60_000
# One customer usually has a whole network of this size.
_IPV6_PREFIX = 64


class FailureDelays:
    def __init__(self, *, first_ms: int) -> None:
        self._first_ms = first_ms
        # By network, the last delay and when it was given; the least recently used first.
        self._delays: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._delays)

    def on_failure(self, address: str, *, now_ms: int) -> int:
        """Return how many milliseconds the reply waits."""
        network = network_of(address)
        last_ms, at_ms = self._delays.pop(network, (0, 0))
        if not last_ms or now_ms - at_ms > FORGOTTEN_AFTER_MS:
            delay_ms = self._first_ms
        else:
            delay_ms = min(max(DELAY_MS_MAX, self._first_ms), last_ms * 2)
        self._delays[network] = delay_ms, now_ms
        if len(self._delays) > ADDRESSES_MAX:
            self._delays.popitem(last=False)
        return delay_ms


def network_of(address: str) -> str:
    """The key of a client: its IPv4 address, or the /64 of its IPv6 address."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    return str(ipaddress.IPv6Network((int(parsed), _IPV6_PREFIX), strict=False))
