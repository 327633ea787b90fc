"""How to connect to brokers: plaintext or TLS, with or without a login.

    Security(tls=Tls(authorities="ca.pem"), login=Login(mechanism="SCRAM-SHA-512", username="app", password=...))

Plain values that can be sent to other processes; their `repr` shows no secrets. Files are read when a connection is
made, on the machine that makes it, so the next connection uses renewed certificates.
"""

import logging
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from respool.client.kafka.errors import BadArgument
from respool.client.kafka.sasl import HASHES, PlainLogin, ScramLogin

if TYPE_CHECKING:
    from ssl import SSLContext

_log = logging.getLogger(__name__)

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *HASHES)

PEM_NEEDED = (
    "PEM is needed: of a store of Java's, `keytool -importkeystore ... -deststoretype PKCS12` and "
    "`openssl pkcs12 -in STORE -out STORE.pem` make it"
)
# Text that contains this is PEM itself, not a file name.
PEM_MARK = "-----BEGIN "


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS settings. Each certificate or key is PEM: a file name, or the text itself."""

    # CA certificates that sign the brokers' certificates; None: this machine's trust store.
    authorities: str | None = None
    # The client certificate and its chain, for brokers that require one.
    certificate: str | None = field(default=None, repr=False)
    # None: the key is in the same file or text as the certificate.
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    # Whether to verify that a broker's certificate matches its host name.
    checks_host: bool = True
    # Allow only TLS 1.3, not 1.2.
    newest_only: bool = False

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise BadArgument("a key for TLS is given, and no certificate that it belongs to")
        if self.key_password is not None and self.certificate is None:
            raise BadArgument("a password for a key is given, and neither key nor certificate")

    def context(self) -> "SSLContext":
        """
        Raises:
            BadArgument: a file cannot be read, or is invalid.
        """
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = (
            ssl.TLSVersion.TLSv1_3 if self.newest_only else ssl.TLSVersion.TLSv1_2
        )
        context.check_hostname = self.checks_host
        # A renegotiation could come at any time, and Kafka's brokers do not need it.
        context.options |= ssl.OP_NO_RENEGOTIATION
        what = f"certificates of authorities ({_source(self.authorities)})"
        try:
            if self.authorities is None:
                context.load_default_certs()
            elif PEM_MARK in self.authorities:
                context.load_verify_locations(cadata=self.authorities)
            else:
                context.load_verify_locations(cafile=self.authorities)
            what = f"certificate ({_source(self.certificate)}) and its key"
            if self.certificate is not None:
                with ExitStack() as files:
                    certificate = files.enter_context(_as_file(self.certificate))
                    key = None if self.key is None else files.enter_context(_as_file(self.key))
                    # Always given: without it OpenSSL would prompt on the terminal for a missing password.
                    context.load_cert_chain(certificate, key, lambda: self.key_password or "")
        except (OSError, ValueError) as error:
            raise BadArgument(
                f"TLS: the {what} cannot be used on {platform.node()}: {error}"
                + (f". {PEM_NEEDED}" if isinstance(error, ssl.SSLError) else "")
            ) from error
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A SASL login with a password. With SCRAM, brokers never receive it, and must prove that they know it too."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    # A delegation token (KIP-48): the username is its id, and the password its HMAC in base64.
    is_token: bool = False

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            raise BadArgument(
                f"the login mechanism {self.mechanism!r} is not known here: {', '.join(MECHANISMS)} are"
            )
        if not self.username or not self.password or "\0" in self.username + self.password:
            raise BadArgument("a login needs a username and a password, without zero bytes")
        if self.is_token and self.mechanism == PLAIN:
            raise BadArgument("a delegation token logs in by SCRAM, not by PLAIN")

    def begin(self) -> PlainLogin | ScramLogin:
        """Start a SASL conversation with one broker."""
        if self.mechanism == PLAIN:
            return PlainLogin(self.username, self.password)
        return ScramLogin(self.mechanism, self.username, self.password, is_token=self.is_token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    tls: Tls | None = None
    login: Login | None = None
    # The option or property that chose the protocol, for error messages; empty if it is not known.
    origin: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.tls is None and self.login is not None and self.login.mechanism == PLAIN:
            warn_of_plain_login()


# Only once: a job creates many of these.
@cache
def warn_of_plain_login() -> None:
    _log.warning(
        "the PLAIN login is sent without TLS: everyone on the network can read the password"
    )


IN_THE_CLEAR = Security()


def _source(pem: str | None) -> str:
    if pem is None:
        return "those of this machine"
    return "given as text" if PEM_MARK in pem else pem


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """Python's TLS reads keys only from files. A temporary file is readable by this user only, and deleted at once."""
    if PEM_MARK not in pem:
        yield pem
        return
    handle, path = tempfile.mkstemp(prefix="respool-", suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(pem)
        yield path
    finally:
        os.unlink(path)
