"""Quotas of clients on this broker: bytes produced and fetched, time on the event loop, changes of topics, connections.

A client over its quota is answered first, with `throttle_time_ms`, and then muted: its connection is not read for that
long, since many clients do not wait by themselves. A fetch over its quota is answered without records. Where no quota
applies to a client, its requests cost one look-up for its session.
"""

from collections.abc import Coroutine, Generator
from typing import Any

from respool.access.quota_buckets import WAIT_MS_MAX, QuotaBucket, QuotaBuckets
from respool.access.quota_table import address_limit, quota_of
from respool.broker.outcome import Outcome
from respool.model.cluster import ClusterImage
from respool.model.security.access_settings import AccessSettings
from respool.model.security.principal import NO_SESSION, AuthenticationMethod, ClientSession
from respool.model.security.quota import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaImage,
)
from respool.model.security.security_errors import ThrottlingQuotaExceeded
from respool.ports.clock import Clock
from respool.ports.metrics import Metrics
from respool.wire.api_table import Api
from respool.wire.codec import Request

# 100 % of a second, in milliseconds of the event loop.
_MS_PER_PERCENT = 10.0
# APIs that only brokers use, or that a muted client needs.
_EXEMPT = frozenset({Api.WRITE_TXN_MARKERS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE})


class SessionQuotas:
    """The buckets of one session's client, and the end of its connection's mute."""

    __slots__ = ("client_id", "fetched", "image", "mutations", "muted_until_ms", "produced", "time")

    def __init__(self, image: QuotaImage, client_id: str | None) -> None:
        self.image = image
        self.client_id = client_id
        self.produced: QuotaBucket | None = None
        self.fetched: QuotaBucket | None = None
        self.time: QuotaBucket | None = None
        self.mutations: QuotaBucket | None = None
        self.muted_until_ms = 0.0


class Quotas:
    def __init__(self, settings: AccessSettings, *, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._image = QuotaImage()
        windows_ms = settings.quota_window_num * settings.quota_window_size_seconds * 1_000
        self._buckets = QuotaBuckets(burst_ms=windows_ms, buckets_max=settings.quota_entities_max)
        # Some client has a quota.
        self.is_on = False
        self._throttled = {
            kind: metrics.counter(
                "respool_throttled_requests_total",
                "Requests after which a client was muted, since it was over its quota.",
                quota=kind,
            )
            for kind in (
                PRODUCER_BYTE_RATE,
                CONSUMER_BYTE_RATE,
                REQUEST_PERCENTAGE,
                CONTROLLER_MUTATION_RATE,
            )
        }

    def on_image(self, image: ClusterImage) -> None:
        self._image = image.quotas
        self.is_on = bool(image.quotas.by_entity)

    def begin(self, request: Request) -> bool:
        """Count a request that is about to be handled, and note in it how long its client has to wait.

        Return True if the time that it takes must be counted, by `timed`.
        """
        session = request.session
        if session is NO_SESSION or request.api.key in _EXEMPT:
            return False
        if session.is_broker and session.method is not AuthenticationMethod.NONE:
            # Where brokers prove nothing, clients could claim to be one.
            return False
        quotas = session.buckets
        if (
            not isinstance(quotas, SessionQuotas)
            or quotas.image is not self._image
            or quotas.client_id != request.client_id
        ):
            quotas = self._new_quotas(session, request.client_id)
        if quotas.produced is not None and request.api.key is Api.PRODUCE:
            now_ms = self._clock.monotonic_ms()
            wait_ms = quotas.produced.take(request.size, now_ms=now_ms)
            if wait_ms:
                self.throttle(request, wait_ms, PRODUCER_BYTE_RATE)
        if quotas.time is None:
            return False
        wait_ms = quotas.time.wait_ms(now_ms=self._clock.monotonic_ms())
        self.throttle(request, wait_ms, REQUEST_PERCENTAGE)
        return True

    def timed(self, request: Request, outcome: Outcome, spent_s: float) -> Outcome:
        """Count the time that the handler took, and will take."""
        quotas = request.session.buckets
        if not isinstance(quotas, SessionQuotas) or quotas.time is None:
            return outcome
        bucket = quotas.time
        self._spend(bucket, spent_s)
        if isinstance(outcome, Coroutine):
            return _Timed(outcome, self, bucket)
        return outcome

    def fetch_room(self, request: Request, bytes_max: int) -> int:
        """How many bytes of records a fetch may get now; 0: none, and the request is throttled."""
        quotas = request.session.buckets
        if not isinstance(quotas, SessionQuotas) or quotas.fetched is None:
            return bytes_max
        now_ms = self._clock.monotonic_ms()
        wait_ms = quotas.fetched.wait_ms(now_ms=now_ms)
        if wait_ms:
            self.throttle(request, wait_ms, CONSUMER_BYTE_RATE)
            return 0
        # At least one batch is always returned, so that a quota below its size does not stop a consumer for good.
        return max(1, min(bytes_max, int(quotas.fetched.available(now_ms=now_ms))))

    def on_fetched(self, session: ClientSession, byte_count: int) -> None:
        quotas = session.buckets
        if isinstance(quotas, SessionQuotas) and quotas.fetched is not None:
            quotas.fetched.take(byte_count, now_ms=self._clock.monotonic_ms())

    def mutate(self, request: Request, count: int, *, strict: bool) -> None:
        """Count the partitions that a request creates or deletes.

        Raises:
            ThrottlingQuotaExceeded: `strict`, and the client has used up its quota. Nothing is counted.
        """
        quotas = request.session.buckets
        if not isinstance(quotas, SessionQuotas) or quotas.mutations is None:
            return
        now_ms = self._clock.monotonic_ms()
        wait_ms = quotas.mutations.wait_ms(now_ms=now_ms)
        if strict and wait_ms:
            self.throttle(request, wait_ms, CONTROLLER_MUTATION_RATE)
            raise ThrottlingQuotaExceeded("The controller mutation quota is exceeded.")
        wait_ms = quotas.mutations.take(count, now_ms=now_ms)
        self.throttle(request, wait_ms, CONTROLLER_MUTATION_RATE)

    def may_connect(self, address: str) -> bool:
        """Count a connection from this address; False if it makes them too fast."""
        if not self.is_on:
            return True
        rate = address_limit(self._image, CONNECTION_CREATION_RATE, address)
        if rate is None:
            return True
        now_ms = self._clock.monotonic_ms()
        bucket = self._buckets.at((CONNECTION_CREATION_RATE, address), rate, now_ms=now_ms)
        if bucket.available(now_ms=now_ms) < 1:
            return False
        bucket.take(1, now_ms=now_ms)
        return True

    def muted_ms(self, session: ClientSession) -> float:
        """How long the session's connection is not to be read, now that a reply was sent."""
        quotas = session.buckets
        if not isinstance(quotas, SessionQuotas) or not quotas.muted_until_ms:
            return 0.0
        left = quotas.muted_until_ms - self._clock.monotonic_ms()
        quotas.muted_until_ms = 0.0
        return max(0.0, left)

    def throttle(self, request: Request, wait_ms: int, kind: str) -> None:
        if not wait_ms:
            return
        self._throttled[kind].inc()
        request.throttle_ms = max(request.throttle_ms, min(wait_ms, WAIT_MS_MAX))
        quotas = request.session.buckets
        assert isinstance(quotas, SessionQuotas)
        until_ms = self._clock.monotonic_ms() + request.throttle_ms
        quotas.muted_until_ms = max(quotas.muted_until_ms, until_ms)

    def _new_quotas(self, session: ClientSession, client_id: str | None) -> SessionQuotas:
        quotas = SessionQuotas(self._image, client_id)
        user = session.principal.name
        quotas.produced = self._bucket(PRODUCER_BYTE_RATE, user, client_id)
        quotas.fetched = self._bucket(CONSUMER_BYTE_RATE, user, client_id)
        quotas.time = self._bucket(REQUEST_PERCENTAGE, user, client_id, scale=_MS_PER_PERCENT)
        quotas.mutations = self._bucket(CONTROLLER_MUTATION_RATE, user, client_id)
        session.buckets = quotas
        return quotas

    def _bucket(
        self, limit: str, user: str, client_id: str | None, *, scale: float = 1.0
    ) -> QuotaBucket | None:
        quota = quota_of(self._image, limit, user=user, client_id=client_id)
        if quota is None:
            return None
        now_ms = self._clock.monotonic_ms()
        return self._buckets.at(quota.bucket, quota.rate * scale, now_ms=now_ms)

    def _spend(self, bucket: QuotaBucket, seconds: float) -> None:
        bucket.take(seconds * 1_000, now_ms=self._clock.monotonic_ms())

    def step(self, bucket: QuotaBucket, began_s: float) -> None:
        self._spend(bucket, self._clock.stopwatch_s() - began_s)

    def stopwatch_s(self) -> float:
        return self._clock.stopwatch_s()


class _Timed(Coroutine[Any, Any, Any]):
    """A handler's coroutine whose steps are counted, and not what it waits for."""

    def __init__(
        self, inner: Coroutine[Any, Any, Any], quotas: Quotas, bucket: QuotaBucket
    ) -> None:
        self._inner = inner
        self._quotas = quotas
        self._bucket = bucket

    def send(self, value: Any) -> Any:
        began_s = self._quotas.stopwatch_s()
        try:
            return self._inner.send(value)
        finally:
            self._quotas.step(self._bucket, began_s)

    def throw(self, *error: Any) -> Any:
        return self._inner.throw(*error)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()
