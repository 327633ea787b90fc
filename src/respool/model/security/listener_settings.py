"""Listeners: where clients connect, by which protocol, and how they authenticate.

`listen` and `advertised` are the listener `client`. Others are tables of the settings file, under any name:

    [listener.external]
    listen = "0.0.0.0:9094"
    advertised = "b1.example.org:9094"
    protocol = "SASL_SSL"

A key that a listener does not have is the broker's setting of the same name, as with Kafka's `listener.name.<name>.*`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from respool.model.addresses import is_loopback, is_wildcard, parse_address
from respool.model.errors import SettingsError
from respool.model.security.principal import CLIENT_LISTENER, AuthenticationMethod
from respool.model.security.principal_mapping import PrincipalMapping
from respool.model.setting_fields import check_choice

LISTENERS_MAX = 32
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ListenerProtocol(StrEnum):
    """Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (ListenerProtocol.SSL, ListenerProtocol.SASL_SSL)

    @property
    def has_login(self) -> bool:
        return self in (ListenerProtocol.SASL_PLAINTEXT, ListenerProtocol.SASL_SSL)


class ClientAuth(StrEnum):
    """Kafka's values: whether clients present a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


MECHANISMS = tuple(
    one.value
    for one in AuthenticationMethod
    if one not in (AuthenticationMethod.NONE, AuthenticationMethod.TLS)
)


@dataclass(frozen=True, kw_only=True)
class ListenerSettings:
    name: str
    listen: str
    advertised: str
    protocol: ListenerProtocol
    sasl_enabled_mechanisms: tuple[str, ...]
    ssl_certificate_file: str
    ssl_key_file: str
    ssl_key_password_file: str
    ssl_ca_file: str
    ssl_crl_file: str
    ssl_client_auth: ClientAuth
    ssl_principal_mapping_rules: str
    # 0: only the broker's limit applies.
    connections_max: int = 0
    connection_creation_rate_max: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SettingsError(
                f"listener.{self.name}: a listener's name has letters, digits, _ and - only"
            )
        assert self.listen_address
        if self.protocol.has_tls:
            self._check_tls()
        if self.protocol.has_login and not self.sasl_enabled_mechanisms:
            raise SettingsError(
                f"{self._key('sasl_enabled_mechanisms')} is empty, so nobody could log in"
            )
        assert self.principal_mapping

    def check_advertised(self) -> None:
        """Clients connect to the advertised address, so it must not be a wildcard.

        The host name is not used by default: clients may be unable to resolve it, and would then fail far from the
        cause.

        Raises:
            SettingsError
        """
        host, _ = self.listen_address
        advertised = self.advertised_address
        if advertised is None and is_wildcard(host):
            raise SettingsError(
                f"{self._key('listen')} = {self.listen!r} accepts clients on every interface, but clients cannot "
                "connect to that address. Set one that they can reach: "
                f"{self._key('advertised')} = 'HOST:PORT' (--advertised)"
            )
        if advertised is not None and is_wildcard(advertised[0]):
            raise SettingsError(
                f"{self._key('advertised')} = {self.advertised!r} is not an address that clients can connect to"
            )

    def _check_tls(self) -> None:
        if not self.ssl_certificate_file:
            raise SettingsError(
                f"{self._key('protocol')} = {self.protocol} needs ssl_certificate_file: PEM, with the whole chain "
                "(and with the key, unless ssl_key_file is given)"
            )
        if self.ssl_client_auth is not ClientAuth.NONE and not self.ssl_ca_file:
            raise SettingsError(
                f"{self._key('ssl_client_auth')} = {self.ssl_client_auth} needs ssl_ca_file: the authorities that sign "
                "the certificates of clients"
            )

    @cached_property
    def listen_address(self) -> tuple[str, int]:
        return parse_address(self._key("listen"), self.listen)

    @cached_property
    def advertised_address(self) -> tuple[str, int] | None:
        return parse_address(self._key("advertised"), self.advertised) if self.advertised else None

    @cached_property
    def principal_mapping(self) -> PrincipalMapping:
        return PrincipalMapping.parse(
            self._key("ssl_principal_mapping_rules"), self.ssl_principal_mapping_rules
        )

    @property
    def is_authenticated(self) -> bool:
        """True if every client proves who it is."""
        return self.protocol.has_login or (
            self.protocol.has_tls and self.ssl_client_auth is ClientAuth.REQUIRED
        )

    def advertised_for(self, host: str, port: int) -> tuple[str, int]:
        """The address to advertise if the listener is bound to this host and port."""
        if self.advertised_address is None:
            return host, port
        name, number = self.advertised_address
        return name, number or port

    def check_open(self) -> None:
        """Refuse settings that are safe only on trusted networks, unless `insecure` is set.

        Raises:
            SettingsError
        """
        host, _ = self.listen_address
        if self.protocol is ListenerProtocol.SASL_PLAINTEXT and "PLAIN" in (
            self.sasl_enabled_mechanisms
        ):
            raise SettingsError(
                f"{self._key('sasl_enabled_mechanisms')} has PLAIN, and {self._key('protocol')} = {self.protocol} "
                "would send passwords that everyone on the network can read: use SASL_SSL, or leave PLAIN out"
            )
        if is_loopback(host):
            return
        if not self.is_authenticated:
            raise SettingsError(
                f"{self._key('listen')} = {self.listen!r} would let anyone who reaches this machine read and write: "
                "clients are not authenticated. Listen on 127.0.0.1, use "
                f"{self._key('protocol')} = SASL_SSL (`respool serve --secure` sets it up), or allow it on a trusted "
                "network with insecure = true (--insecure)"
            )
        if not self.protocol.has_tls:
            raise SettingsError(
                f"{self._key('listen')} = {self.listen!r}: {self.protocol} is not encrypted, so everyone on the "
                "network can read messages and take over connections. Use SASL_SSL, or allow it on a trusted network "
                "with insecure = true (--insecure)"
            )

    def _key(self, name: str) -> str:
        return name if self.name == CLIENT_LISTENER else f"listener.{self.name}.{name}"


# The settings that a listener may have of its own, with the types of their values.
LISTENER_KEYS: Mapping[str, type] = {
    "listen": str,
    "advertised": str,
    "protocol": str,
    "sasl_enabled_mechanisms": str,
    "ssl_certificate_file": str,
    "ssl_key_file": str,
    "ssl_key_password_file": str,
    "ssl_ca_file": str,
    "ssl_crl_file": str,
    "ssl_client_auth": str,
    "ssl_principal_mapping_rules": str,
    "connections_max": int,
    "connection_creation_rate_max": int,
}


def listener(name: str, values: Mapping[str, object]) -> ListenerSettings:
    """A listener from the values of its keys.

    Raises:
        SettingsError
    """
    where = "" if name == CLIENT_LISTENER else f"listener.{name}."
    if not values.get("listen"):
        raise SettingsError(f"{where}listen is missing: HOST:PORT to accept connections on")
    fields: dict[str, object] = dict(values)
    protocol = str(values["protocol"]).strip().upper()
    check_choice(f"{where}protocol", protocol, tuple(ListenerProtocol))
    auth = str(values["ssl_client_auth"]).strip().lower()
    check_choice(f"{where}ssl_client_auth", auth, tuple(ClientAuth))
    mechanisms = tuple(
        one.strip().upper()
        for one in str(values["sasl_enabled_mechanisms"]).split(",")
        if one.strip()
    )
    for one in mechanisms:
        check_choice(f"{where}sasl_enabled_mechanisms", one, MECHANISMS)
    fields |= {
        "protocol": ListenerProtocol(protocol),
        "ssl_client_auth": ClientAuth(auth),
        "sasl_enabled_mechanisms": mechanisms,
    }
    return ListenerSettings(name=name, **fields)  # type: ignore[arg-type]
