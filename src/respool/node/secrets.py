"""The secrets of a broker's listeners that are not in its settings: certificates, keys, and other files."""

import logging
import os
import stat

from respool.drivers.certificate_files import CertificateFiles
from respool.drivers.fetched_identity_keys import FetchedIdentityKeys
from respool.model.errors import SettingsError
from respool.model.extras import how_to_install
from respool.model.settings import Settings
from respool.ports.metrics import Metrics

logger = logging.getLogger(__name__)

# A key of fewer bytes could be guessed.
SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 4_096


def load_certificates(settings: Settings, metrics: Metrics) -> dict[str, CertificateFiles]:
    """The certificates of each listener with TLS, by its name.

    Raises:
        SettingsError: a file cannot be used.
    """
    failed = metrics.gauge(
        "respool_tls_reload_failed",
        "1 if the files of a certificate have changed and cannot be used, so the old one is served.",
    )
    found = {
        one.name: CertificateFiles(
            one, versions=settings.security.tls_versions, on_failing=failed.set
        )
        for one in settings.listeners
        if one.protocol.has_tls
    }
    for one in found.values():
        one.load()
    return found


def identity_keys_of(settings: Settings) -> FetchedIdentityKeys | None:
    uses = any(
        one.protocol.has_login and "OAUTHBEARER" in one.sasl_enabled_mechanisms
        for one in settings.listeners
    )
    if not uses:
        return None
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise SettingsError(
            f"sasl_enabled_mechanisms has OAUTHBEARER, which needs cryptography: {how_to_install('secure')}"
        ) from None
    security = settings.security
    return FetchedIdentityKeys(
        security.sasl_oauthbearer_jwks_endpoint_url,
        refresh_ms=security.sasl_oauthbearer_jwks_endpoint_refresh_ms,
    )


def token_secret_of(settings: Settings) -> bytes:
    """The key of delegation tokens; empty: there are none.

    Raises:
        SettingsError: the file cannot be read, or its key is too short.
    """
    path = settings.security.delegation_token_secret_key_file
    if not path:
        return b""
    secret = read_secret("delegation_token_secret_key_file", path)
    if len(secret) < SECRET_BYTES_MIN:
        raise SettingsError(
            f"delegation_token_secret_key_file = {path!r}: a key has at least {SECRET_BYTES_MIN} bytes"
        )
    return secret


def read_secret(name: str, path: str) -> bytes:
    """The content of a file without the newline at its end; a warning if others may read the file.

    Raises:
        SettingsError
    """
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"{name} = {path!r}: {error.strerror}") from None
    if len(secret) > SECRET_BYTES_MAX:
        raise SettingsError(f"{name} = {path!r}: longer than {SECRET_BYTES_MAX} bytes")
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("%s = %r can be read by others: chmod 600 it", name, path)
    return secret.rstrip(b"\r\n")
