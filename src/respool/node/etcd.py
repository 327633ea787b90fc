"""Connects to the metadata store of a cluster. The etcd driver and its library are imported only here, when needed."""

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from respool.drivers.etcd_options import EtcdOptions
from respool.model.errors import SettingsError
from respool.model.extras import how_to_install
from respool.model.settings import Settings
from respool.ports.metadata_store import StoreUnavailable

if TYPE_CHECKING:
    from respool.ports.metadata_store import MetadataStore

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 1.0
ATTEMPT_MS_MAX = 2_000
REQUEST_MS_MAX = 5_000


def etcd_options(settings: Settings) -> EtcdOptions:
    """The connection options for etcd. The password file is read now, and again if etcd rejects the password.

    Raises:
        SettingsError: the password file cannot be read, or has no password.
    """
    assert settings.metadata_store.endpoints
    # A session must survive one unresponsive member: a request to it and then one to another must fit into the lease.
    return EtcdOptions(
        endpoints=settings.metadata_store.endpoints,
        cluster=settings.metadata_store.cluster,
        user=settings.metadata_store.user,
        password=_password(settings),
        read_password=partial(_password, settings)
        if settings.metadata_store.password_file
        else None,
        ca_file=settings.metadata_store.ca_file,
        cert_file=settings.metadata_store.cert_file,
        key_file=settings.metadata_store.key_file,
        allow_old_versions=settings.metadata_store.allow_old_versions,
        attempt_timeout_ms=min(ATTEMPT_MS_MAX, settings.membership.session_ttl_ms // 6),
        request_timeout_ms=min(REQUEST_MS_MAX, settings.membership.session_ttl_ms // 2),
        watch_ping_ms=min(REQUEST_MS_MAX, settings.membership.session_ttl_ms // 3),
    )


async def connect_to_etcd(settings: Settings, *, patience_ms: int = 0) -> "MetadataStore":
    """Connect and log in to the cluster's metadata store; wait up to `patience_ms` for a reply.

    Raises:
        SettingsError: the settings are invalid, or the library for etcd is not installed.
        StoreUnavailable: etcd does not reply, or (EtcdRefused) rejects this broker; the message says what to do.
    """
    options = etcd_options(settings)
    try:
        from respool.drivers.etcd_failures import EtcdRefused
        from respool.drivers.etcd_store import EtcdStore
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"etcd = {settings.metadata_store.addresses!r} needs the library {error.name}: "
            f"{how_to_install('cluster')}"
        ) from error
    loop = asyncio.get_running_loop()
    has_warned = False
    deadline = loop.time() + patience_ms / 1000
    while True:
        try:
            return await EtcdStore.connect(options)
        except EtcdRefused:
            # Retrying would not change a refusal.
            raise
        except StoreUnavailable as error:
            if loop.time() >= deadline:
                raise
            if not has_warned:
                logger.warning("waiting for etcd, %d s at most: %s", patience_ms // 1000, error)
                has_warned = True
        await asyncio.sleep(RETRY_DELAY_S)


def is_refusal(error: StoreUnavailable) -> bool:
    """True if etcd has rejected `connect_to_etcd`; the error's message says what to do."""
    from respool.drivers.etcd_failures import EtcdRefused

    return isinstance(error, EtcdRefused)


def _password(settings: Settings) -> str:
    path = settings.metadata_store.password_file
    if not path:
        return settings.metadata_store.password
    try:
        password = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise SettingsError(f"etcd_password_file = {path!r}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise SettingsError(f"etcd_password_file = {path!r} is not text") from None
    if not password:
        raise SettingsError(f"etcd_password_file = {path!r} is empty")
    return password
