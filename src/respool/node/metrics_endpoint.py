"""Serves metrics and health: in the clear on this machine, beyond it by TLS and for those who show a token."""

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

from respool.drivers.certificate_files import CertificateFiles
from respool.drivers.prometheus_metrics import PrometheusMetrics
from respool.model.errors import SettingsError
from respool.model.security.listener_settings import ClientAuth, ListenerProtocol
from respool.model.settings import Settings
from respool.node.secrets import SECRET_BYTES_MAX, SECRET_BYTES_MIN, read_secret
from respool.ports.metrics import Metrics
from respool.server.http_endpoint import HttpEndpoint
from respool.server.pages import Health, MetricsPage

logger = logging.getLogger(__name__)

# Probes have no token, and what these pages tell is no secret.
PUBLIC_PAGES = ("/healthz", "/readyz")


async def serve_metrics(
    settings: Settings,
    metrics: PrometheusMetrics,
    health: Health,
    *,
    stack: ExitStack,
    on_listening: Callable[[str, int], None],
) -> CertificateFiles | None:
    """Serve from start to end, so that probes learn why a broker is not ready; return the certificate to be watched.

    Raises:
        SettingsError: the address, the certificate or the token cannot be used.
    """
    if settings.metrics.address is None:
        return None
    certificate = certificate_of(settings, metrics)
    endpoint = HttpEndpoint(
        {
            "/metrics": MetricsPage(metrics.pieces, prepare=metrics.read_process).make,
            "/healthz": health.healthz,
            "/readyz": health.readyz,
        },
        token=token_of(settings),
        public=PUBLIC_PAGES,
        tls=None if certificate is None else certificate.context,
    )
    stack.callback(endpoint.close)
    host, port = await endpoint.start(*settings.metrics.address)
    scheme = "http" if certificate is None else "https"
    logger.info("metrics on %s://%s:%d/metrics", scheme, host, port)
    on_listening(host, port)
    return certificate


def certificate_of(settings: Settings, metrics: Metrics) -> CertificateFiles | None:
    """
    Raises:
        SettingsError: the file cannot be used.
    """
    failed = metrics.gauge(
        "respool_metrics_tls_reload_failed",
        "1 if metrics_certificate_file has changed and cannot be used, so the old certificate is served.",
    )
    path = settings.metrics.certificate_file
    if not path:
        return None
    like_listener = replace(
        settings.listeners[0],
        name="metrics",
        protocol=ListenerProtocol.SSL,
        ssl_certificate_file=path,
        ssl_key_file="",
        ssl_key_password_file="",
        ssl_ca_file="",
        ssl_crl_file="",
        ssl_client_auth=ClientAuth.NONE,
    )
    found = CertificateFiles(
        like_listener, versions=settings.security.tls_versions, on_failing=failed.set
    )
    found.load()
    return found


def token_of(settings: Settings) -> Callable[[], bytes] | None:
    """What returns the token now; the file is read for each scrape, so a replaced token counts at once.

    Raises:
        SettingsError: the file cannot be read, or its token is too short.
    """
    path = settings.metrics.token_file
    if not path:
        return None
    known = read_secret("metrics_token_file", path)
    if len(known) < SECRET_BYTES_MIN:
        raise SettingsError(
            f"metrics_token_file = {path!r}: a token has at least {SECRET_BYTES_MIN} bytes"
        )

    def read() -> bytes:
        nonlocal known
        try:
            with open(path, "rb") as file:
                found = file.read(SECRET_BYTES_MAX).rstrip(b"\r\n")
        except OSError:
            # It is being replaced.
            return known
        if len(found) >= SECRET_BYTES_MIN:
            known = found
        return known

    return read
