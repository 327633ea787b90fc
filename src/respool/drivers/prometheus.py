"""Metrics for Prometheus to scrape: `ports.metrics` on the prometheus_client library.

The registry is our own, so that two brokers in one process, or one test after another, do not share numbers.
"""

import socket
import threading
from typing import TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    generate_latest,
    make_wsgi_app,
)

from respool.drivers.prometheus_histogram import Histogram, HistogramFamily
from respool.model.errors import SettingsError

Family = Counter | Gauge
Kind = TypeVar("Kind", bound=Family)


class PrometheusMetrics:
    """Makes instruments, and shows them as text over HTTP."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        # Memory, CPU, file descriptors and start time of this process.
        ProcessCollector(registry=self._registry)
        self._families: dict[str, Family] = {}
        self._histograms: dict[str, HistogramFamily] = {}
        self._labels: dict[str, tuple[str, ...]] = {}
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    def counter(self, name: str, help_text: str, **labels: str) -> Counter:
        if name not in self._families:
            self._add(
                name, labels, Counter(name, help_text, sorted(labels), registry=self._registry)
            )
        return self._get(Counter, name, labels)

    def gauge(self, name: str, help_text: str, **labels: str) -> Gauge:
        if name not in self._families:
            self._add(name, labels, Gauge(name, help_text, sorted(labels), registry=self._registry))
        return self._get(Gauge, name, labels)

    def histogram(
        self, name: str, help_text: str, *, buckets: tuple[float, ...], **labels: str
    ) -> Histogram:
        family = self._histograms.get(name)
        if family is None:
            assert name not in self._families, f"{name} is no histogram"
            family = HistogramFamily(name, help_text, label_names=sorted(labels), bounds=buckets)
            self._histograms[name] = family
            self._registry.register(family)
        return family.get(labels)

    def text(self) -> str:
        """What a scrape gets."""
        return generate_latest(self._registry).decode()

    def serve(self, host: str, port: int) -> int:
        """Answer scrapes on a thread of its own until `close`; return the port, for port 0 the one that was picked.

        Raises:
            SettingsError: the address cannot be listened on.
        """
        assert self._server is None
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            server_class = type("_Server", (WSGIServer,), {"address_family": family})
            self._server = make_server(
                host, port, make_wsgi_app(self._registry), server_class, _OneShot
            )
        except OSError as error:
            raise SettingsError(
                f"metrics_listen = {host}:{port} cannot be listened on: {error.strerror}"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="respool-metrics", daemon=True
        )
        self._thread.start()
        return self._server.server_port

    def close(self) -> None:
        """Stop answering scrapes."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None

    def _add(self, name: str, labels: dict[str, str], family: Family) -> None:
        assert name not in self._histograms, f"{name} is a histogram already"
        self._families[name] = family
        self._labels[name] = tuple(sorted(labels))

    def _get(self, kind: type[Kind], name: str, labels: dict[str, str]) -> Kind:
        family = self._families[name]
        assert isinstance(family, kind), f"{name} is a {type(family).__name__} already"
        known = self._labels[name]
        assert known == tuple(sorted(labels)), f"{name} has the labels {known}"
        return family.labels(**labels) if labels else family


class _OneShot(WSGIRequestHandler):
    """One request after another on one thread, each with little time: scrapers are few, and idlers cost no threads."""

    timeout = 5

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Scrapes are not worth a line each."""
