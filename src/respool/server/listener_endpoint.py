"""One listener's side of accepting connections: its settings, its certificates, and what it counts."""

import asyncio
import logging
import ssl
from collections.abc import Callable

from respool.broker.logins.logins import Logins
from respool.model.security.listener_settings import MECHANISMS, ListenerSettings
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.pacing.token_bucket import TokenBucket
from respool.ports.metrics import Metrics
from respool.server.tls_line import HandshakeTurns

USER_SHOWN_MAX = 64


class ListenerEndpoint:
    def __init__(
        self,
        settings: ListenerSettings,
        *,
        logins: Logins,
        metrics: Metrics,
        refusals: RateLimitedLog,
        login_frame_bytes_max: int,
        tls: Callable[[], ssl.SSLContext] | None,
        turns: HandshakeTurns,
    ) -> None:
        """`tls` returns the context for the next connection; None: the listener is in the clear."""
        assert (tls is not None) == settings.protocol.has_tls
        self.settings = settings
        self.logins = logins
        self.login_frame_bytes_max = login_frame_bytes_max
        self.tls = tls
        self.turns = turns
        self._logins_counted = {
            (mechanism, result): metrics.counter(
                "respool_logins_total", "Logins of clients.", mechanism=mechanism, result=result
            )
            for mechanism in MECHANISMS
            for result in ("accepted", "refused")
        }
        self._handshakes_counted = {
            result: metrics.counter(
                "respool_tls_handshakes_total", "TLS handshakes with clients.", result=result
            )
            for result in ("done", "failed")
        }
        self._refusals = refusals
        # How many connections it has.
        self.connections = 0
        rate = settings.connection_creation_rate_max
        self._creations = TokenBucket(rate_per_s=rate) if rate else None

    @property
    def needs_admission(self) -> bool:
        return self.settings.protocol.has_tls or self.settings.protocol.has_login

    def limit_reached(self) -> str | None:
        """The limit of this listener that a new connection exceeds; it is counted already."""
        name = self.settings.name
        limit = self.settings.connections_max
        if limit and self.connections > limit:
            return f"connections_max = {limit} of the listener {name}"
        if self._creations is not None:
            now_ms = self.logins.clock.monotonic_ms()
            if self._creations.available(now_ms=now_ms) < 1:
                rate = self.settings.connection_creation_rate_max
                return f"connection_creation_rate_max = {rate} of the listener {name}"
            self._creations.take(1, now_ms=now_ms)
        return None

    def on_login(self, mechanism: str, *, is_accepted: bool) -> None:
        self._logins_counted[mechanism, "accepted" if is_accepted else "refused"].inc()

    def on_handshake(self, *, is_done: bool) -> None:
        self._handshakes_counted["done" if is_done else "failed"].inc()

    def note_failed_login(self, host: str, user: str, why: str) -> None:
        """Log a failed login: each host and user once a minute. Text from clients is escaped."""
        self._refusals.log(
            logging.WARNING,
            "refused a login from %s on the listener %s as %r: %s",
            host,
            self.settings.name,
            user[:USER_SHOWN_MAX],
            why,
            now_s=asyncio.get_running_loop().time(),
            key=f"login {host} {user[:USER_SHOWN_MAX]} {why}",
        )
