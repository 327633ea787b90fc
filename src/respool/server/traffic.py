"""Traffic by API: requests, bytes, errors, and the time that requests spend in each stage.

```
 bytes complete       started         handler done        reply ready        accepted by the kernel
        |---- queue ----|---- local ----|---- remote ----|------- send -------|
```
- queue: waiting behind other requests of its connection
- local: the broker's own work, including disk reads
- remote: a produce waits for its commit (sync and followers), a fetch for data, a join for other members
- send: waiting behind replies to earlier requests, and until the kernel accepts the bytes

Each request is counted in plain numbers, which costs about a microsecond; they are reported periodically.
"""

from bisect import bisect_left
from collections import Counter
from typing import NamedTuple, Protocol

from respool.broker.outcome import Reply
from respool.ports.metrics import Histogram, Metrics
from respool.wire.api_table import ApiSpec
from respool.wire.codec import Request
from respool.wire.reply_errors import FrameWithErrors, error_name

# In seconds: from a reply out of memory to a fetch that waits for data.
SECONDS_BOUNDS = (
    *(0.0001, 0.00025, 0.0005),
    *(0.001, 0.0025, 0.005),
    *(0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
# Coarser, since there are four of them per API.
STAGE_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
_STAGE_BOUND_MIN = STAGE_BOUNDS[0]


class RequestTimes(NamedTuple):
    """The times of a request until its reply is ready, in seconds."""

    queue_s: float
    local_s: float
    remote_s: float


class TrafficCounter(Protocol):
    """Counts requests and replies."""

    def on_request(self, request: Request) -> None: ...

    def on_reply(self, api: ApiSpec, reply: Reply, times: RequestTimes) -> None: ...

    def on_sent(self, api: ApiSpec, seconds: float) -> None: ...


class Traffic:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_api: dict[int, _ApiTraffic] = {}

    def on_request(self, request: Request) -> None:
        traffic = self._by_api.get(request.api.key)
        if traffic is None:
            traffic = self._by_api[request.api.key] = _ApiTraffic(self._metrics, request.api.name)
        traffic.requests += 1
        traffic.bytes_in += request.size

    def on_reply(self, api: ApiSpec, reply: Reply, times: RequestTimes) -> None:
        """A request that `on_request` counted has its reply; an empty reply is not sent."""
        traffic = self._by_api[api.key]
        queue_s, local_s, remote_s = times
        seconds = local_s + remote_s
        traffic.seconds += seconds
        traffic.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        traffic.queue.add(queue_s)
        traffic.local.add(local_s)
        traffic.remote.add(remote_s)
        if not reply:
            return
        traffic.bytes_out += len(reply[0]) if len(reply) == 1 else sum(map(len, reply))
        last = reply[-1]
        if type(last) is FrameWithErrors:
            traffic.errors.update(last.error_codes)

    def on_sent(self, api: ApiSpec, seconds: float) -> None:
        """The kernel has accepted a reply, `seconds` after it was ready."""
        self._by_api[api.key].send.add(seconds)

    def report(self) -> None:
        for traffic in self._by_api.values():
            traffic.report()


class _Stage:
    """One stage of an API's requests, since the last report."""

    __slots__ = ("_histogram", "counts", "total")

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._begin()

    def add(self, seconds: float) -> None:
        self.total += seconds
        # Nearly always the first bucket is right.
        self.counts[0 if seconds <= _STAGE_BOUND_MIN else bisect_left(STAGE_BOUNDS, seconds)] += 1

    def report(self) -> None:
        self._histogram.add(self.counts, self.total)
        self._begin()

    def _begin(self) -> None:
        self.total = 0.0
        self.counts = [0] * (len(STAGE_BOUNDS) + 1)


class _ApiTraffic:
    """Counters of one API since the last report."""

    __slots__ = (
        "_api", "_bytes_in_total", "_bytes_out_total", "_metrics", "_requests_total", "_seconds",
        "bytes_in", "bytes_out", "counts", "errors", "local", "queue", "remote", "requests", "seconds", "send",
    )  # fmt: skip

    def __init__(self, metrics: Metrics, api: str) -> None:
        self._metrics = metrics
        self._api = api
        self._requests_total = metrics.counter(
            "respool_requests_total", "Requests received.", api=api
        )
        self._bytes_in_total = metrics.counter(
            "respool_request_bytes_total", "Bytes of requests received.", api=api
        )
        self._bytes_out_total = metrics.counter(
            "respool_reply_bytes_total", "Bytes of replies made.", api=api
        )
        self._seconds = metrics.histogram(
            "respool_request_seconds",
            "Time from taking a request up until its reply is ready, waiting included.",
            buckets=SECONDS_BOUNDS,
            api=api,
        )
        self.queue = self._stage("queue")
        self.local = self._stage("local")
        self.remote = self._stage("remote")
        self.send = self._stage("send")
        self._begin()

    def report(self) -> None:
        self._requests_total.inc(self.requests)
        self._bytes_in_total.inc(self.bytes_in)
        self._bytes_out_total.inc(self.bytes_out)
        self._seconds.add(self.counts, self.seconds)
        for stage in (self.queue, self.local, self.remote, self.send):
            stage.report()
        for code, count in self.errors.items():
            self._metrics.counter(
                "respool_errors_total",
                "Errors told in replies, each by itself: of a request, a topic, a partition.",
                api=self._api,
                error=error_name(code),
            ).inc(count)
        self._begin()

    def _stage(self, stage: str) -> _Stage:
        return _Stage(
            self._metrics.histogram(
                "respool_request_stage_seconds",
                "Where a request's time goes: queue, local, remote, send.",
                buckets=STAGE_BOUNDS,
                api=self._api,
                stage=stage,
            )
        )

    def _begin(self) -> None:
        self.requests = self.bytes_in = self.bytes_out = 0
        self.seconds = 0.0
        self.counts = [0] * (len(SECONDS_BOUNDS) + 1)
        self.errors: Counter[int] = Counter()
