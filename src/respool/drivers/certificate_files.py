"""The certificate of one listener, from files that are watched: a renewed one is served without a restart.

A change makes a new context; connections that are open keep theirs. Files that cannot be used change nothing: the old
certificate is served, and a warning says why. So the certificate and its key may be replaced one after the other.
"""

import asyncio
import logging
import os
import ssl
import stat
import time
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from respool.model.errors import SettingsError
from respool.model.security.distinguished_name import NotACertificate, subject_of, validity_of
from respool.model.security.listener_settings import ClientAuth, ListenerSettings

logger = logging.getLogger(__name__)

CHECK_INTERVAL_S = 5.0
# Days before the end of the certificate at which warnings are logged.
WARNED_DAYS = (30, 7, 1)
DAY_MS = 24 * 3_600_000
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_AUTH = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_Marks: TypeAlias = tuple[tuple[str, int, int, int], ...]


class CertificateUnusable(SettingsError):
    """The files of a certificate are missing, do not fit together, or the certificate has expired."""


class CertificateFiles:
    def __init__(
        self,
        settings: ListenerSettings,
        *,
        versions: tuple[str, ...],
        on_failing: Callable[[float], None] = lambda _: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`on_failing` gets 1 when changed files cannot be used, and 0 when they can again."""
        self._settings = settings
        self._versions = versions
        self._on_failing = on_failing
        self._now_ms = now_ms
        self._context: ssl.SSLContext | None = None
        # As they were when the context was made, and when it was last tried.
        self._tried: _Marks = ()
        self._ends_ms = 0
        self._warned_days: int | None = None

    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        assert self._context is not None
        return self._context

    def load(self) -> None:
        """
        Raises:
            CertificateUnusable: there is nothing to serve.
        """
        self._tried = self._marks()
        self._context, self._ends_ms = self._make()
        self._warn_of_end()

    def check(self) -> bool:
        """Load the files again if they have changed; return whether a new certificate is served."""
        self._warn_of_end()
        marks = self._marks()
        if marks == self._tried:
            return False
        self._tried = marks
        try:
            self._context, self._ends_ms = self._make()
        except CertificateUnusable as error:
            self._on_failing(1)
            logger.warning("the certificate before is served on: %s", error)
            return False
        self._on_failing(0)
        self._warned_days = None
        logger.info("listener %s: a renewed certificate is served", self._settings.name)
        self._warn_of_end()
        return True

    async def keep_watching(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            await loop.run_in_executor(None, self.check)

    def _marks(self) -> _Marks:
        one = self._settings
        paths = (
            one.ssl_certificate_file,
            one.ssl_key_file,
            one.ssl_key_password_file,
            one.ssl_ca_file,
            one.ssl_crl_file,
        )
        return tuple(_mark(path) for path in paths if path)

    def _make(self) -> tuple[ssl.SSLContext, int]:
        one = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        wanted = [_VERSIONS[name] for name in self._versions]
        context.minimum_version, context.maximum_version = min(wanted), max(wanted)
        # Cheap for the client and expensive for the broker.
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        what = f"ssl_certificate_file = {one.ssl_certificate_file!r}"
        try:
            ends_ms = self._check_certificate()
            what = f"{what} and its key"
            context.load_cert_chain(
                one.ssl_certificate_file, one.ssl_key_file or None, self._password
            )
            if one.ssl_client_auth is not ClientAuth.NONE:
                what = f"ssl_ca_file = {one.ssl_ca_file!r}"
                context.load_verify_locations(cafile=one.ssl_ca_file)
                context.verify_mode = _AUTH[one.ssl_client_auth]
                # A resumed session would not check the client's certificate again.
                context.options |= ssl.OP_NO_TICKET
                context.num_tickets = 0
                if one.ssl_crl_file:
                    what = f"ssl_crl_file = {one.ssl_crl_file!r}"
                    context.load_verify_locations(cafile=one.ssl_crl_file)
                    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        except NotACertificate as error:
            raise CertificateUnusable(f"listener {one.name}: {what}: {error}") from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
            raise CertificateUnusable(f"listener {one.name}: {what}: {why}") from None
        return context, ends_ms

    def _check_certificate(self) -> int:
        """Return when the certificate ends."""
        one = self._settings
        der = first_certificate(one.ssl_certificate_file)
        begins_ms, ends_ms = validity_of(der)
        now_ms = self._now_ms()
        if not begins_ms <= now_ms < ends_ms:
            when = "has expired" if ends_ms <= now_ms else "is not valid yet"
            raise NotACertificate(f"the certificate of {subject_of(der)!r} {when}")
        key_file = one.ssl_key_file or one.ssl_certificate_file
        if os.stat(key_file).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            logger.warning("the private key in %s can be read by others: chmod 600 it", key_file)
        return ends_ms

    def _password(self) -> str:
        """Always passed: without it, OpenSSL would ask for a missing password on the terminal."""
        path = self._settings.ssl_key_password_file
        if not path:
            return ""
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip("\r\n")

    def _warn_of_end(self) -> None:
        left_ms = self._ends_ms - self._now_ms()
        due = [days for days in WARNED_DAYS if left_ms < days * DAY_MS]
        if due and min(due) != self._warned_days:
            self._warned_days = min(due)
            logger.warning(
                "listener %s: the certificate in %s expires in %.1f days",
                self._settings.name,
                self._settings.ssl_certificate_file,
                max(0, left_ms) / DAY_MS,
            )


def first_certificate(path: str) -> bytes:
    """The first certificate of a PEM file, in DER.

    Raises:
        NotACertificate: the file has no certificate.
        OSError
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read(1 << 20)
    begin = text.find(ssl.PEM_HEADER)
    end = text.find(ssl.PEM_FOOTER, begin)
    if begin < 0 or end < 0:
        raise NotACertificate("there is no certificate in PEM in it")
    try:
        return ssl.PEM_cert_to_DER_cert(text[begin : end + len(ssl.PEM_FOOTER)])
    except ValueError as error:
        raise NotACertificate(f"the certificate is damaged: {error}") from None


def _mark(path: str) -> tuple[str, int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, found.st_mtime_ns, found.st_size, found.st_ino
