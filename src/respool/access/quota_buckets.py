"""The buckets of quotas: how much each client has used, and how long it has to wait. Pure: the caller brings the time.

A client that exceeds its quota is in debt, and waits until the debt is paid. The request that exceeded it is still
served. Requests that can be refused, such as changes of topics, are refused while there is a debt.
"""

from collections import OrderedDict

from respool.access.quota_table import AppliedQuota
from respool.pacing.token_bucket import TokenBucket

# A longer wait would exceed clients' request timeouts and group members' session timeouts. The debt stays.
WAIT_MS_MAX = 10_000


class QuotaBuckets:
    def __init__(self, *, burst_ms: int, buckets_max: int) -> None:
        self._burst_ms = burst_ms
        self._buckets_max = buckets_max
        # Least recently used first. An evicted bucket was idle for long, or too many clients are tracked.
        self._buckets: OrderedDict[tuple[object, ...], QuotaBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, quota: AppliedQuota, *, now_ms: float) -> "QuotaBucket":
        return self.at(quota.bucket, quota.rate, now_ms=now_ms)

    def at(self, key: tuple[object, ...], rate: float, *, now_ms: float) -> "QuotaBucket":
        """The bucket of this key, with this rate from now on."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = QuotaBucket(rate, burst_ms=self._burst_ms, now_ms=now_ms)
            if len(self._buckets) > self._buckets_max:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
            bucket.set_rate(rate, now_ms=now_ms)
        return bucket


class QuotaBucket:
    __slots__ = ("_bucket", "rate")

    def __init__(self, rate: float, *, burst_ms: int, now_ms: float) -> None:
        self.rate = rate
        self._bucket = TokenBucket(rate_per_s=rate, burst_ms=burst_ms, capacity_min=1.0)
        # It begins full, now.
        self._bucket.wait_ms(now_ms=now_ms)

    def set_rate(self, rate: float, *, now_ms: float) -> None:
        if rate != self.rate:
            self.rate = rate
            self._bucket.set_rate(rate, now_ms=now_ms)

    def take(self, amount: float, *, now_ms: float) -> int:
        """Use this much, and return how long to wait afterwards, in milliseconds."""
        wait_ms = self._bucket.take_and_wait_ms(amount, now_ms=now_ms)
        return min(WAIT_MS_MAX, wait_ms) if wait_ms else 0

    def wait_ms(self, *, now_ms: float) -> int:
        return min(WAIT_MS_MAX, self._bucket.wait_ms(now_ms=now_ms))

    def available(self, *, now_ms: float) -> float:
        return self._bucket.available(now_ms=now_ms)
