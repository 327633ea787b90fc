"""Listeners, TLS and logins in a Kafka broker's server.properties: what becomes of each line.

    listeners=IN://:9092,OUT://:9094                 listen = "0.0.0.0:9092", and [listener.out] listen = "0.0.0.0:9094"
    listener.security.protocol.map=OUT:SASL_SSL      protocol
    ssl.keystore.type=PEM                            ssl_certificate_file, of all listeners
    ssl.keystore.location=/etc/kafka/broker.pem
    listener.name.out.ssl.client.auth=required       [listener.out] ssl_client_auth

The first listener that is not the controllers' is that of `listen`; the others keep their names, in lower case. Where a
line has no equivalent, it is refused, with what to do instead; JAAS entries are read as text.
"""

import re
from collections.abc import Callable, Mapping
from typing import Protocol

from respool.model.errors import SettingsError
from respool.model.kafka_settings.java_properties import JavaProperty
from respool.model.security.listener_settings import LISTENER_KEYS, ListenerProtocol

_ANYWHERE = ("", "0.0.0.0", "[::]")  # noqa: S104 - compared with, not listened on.
_OF_LISTENER = "listener.name."
_PROTOCOLS = tuple(one.value for one in ListenerProtocol)
# Of one listener, or of all: Kafka's name -> ours.
_SAME = {
    "sasl.enabled.mechanisms": "sasl_enabled_mechanisms",
    "ssl.client.auth": "ssl_client_auth",
    "ssl.principal.mapping.rules": "ssl_principal_mapping_rules",
}
_LIMITS = {
    "max.connections": "connections_max",
    "max.connection.creation.rate": "connection_creation_rate_max",
}
_STORES = {
    "ssl.keystore.location": "ssl_certificate_file",
    "ssl.truststore.location": "ssl_ca_file",
}
_OPENSSL = "TLS is OpenSSL's, which chooses ciphers, random numbers and the handling of keys itself"
_PEERS = "how brokers connect to each other is in the file that inter_broker_config names"
_PASSWORDS = "passwords in settings end up in backups and tickets"
# Kafka's name -> the values that are accepted (None: any), and why.
_WITHOUT_EFFECT: Mapping[str, tuple[tuple[str, ...] | None, str]] = {
    "sasl.mechanism.inter.broker.protocol": (None, _PEERS),
    "ssl.allow.dn.changes": (None, "a renewed certificate is served whatever its names are"),
    "ssl.allow.san.changes": (None, "a renewed certificate is served whatever its names are"),
    "ssl.cipher.suites": (("",), _OPENSSL),
    "ssl.endpoint.identification.algorithm": (
        ("https",),
        "brokers check each other's names, unless the file of inter_broker_config says otherwise",
    ),
    "ssl.engine.factory.class": (("",), "Java classes cannot be loaded"),
    "ssl.keymanager.algorithm": (None, _OPENSSL),
    "ssl.protocol": (
        ("TLS", "TLSv1.2", "TLSv1.3"),
        "the versions are those of ssl.enabled.protocols",
    ),
    "ssl.provider": (("",), _OPENSSL),
    "ssl.secure.random.implementation": (None, _OPENSSL),
    "ssl.trustmanager.algorithm": (None, _OPENSSL),
}
_REFUSED = {
    "ssl.key.password": (
        f"{_PASSWORDS}: write it to a file, and give its name with --set ssl_key_password_file=FILE"
    ),
    "ssl.keystore.certificate.chain": "write it to a file with the key, for ssl.keystore.location",
    "ssl.keystore.key": "write it to a file with the certificates, for ssl.keystore.location",
    "ssl.keystore.password": "a PEM file has no password of its own; its key may have: ssl_key_password_file",
    "ssl.truststore.certificates": "write them to a file, for ssl.truststore.location",
    "ssl.truststore.password": "a PEM file of certificates has no password",
}
_TYPES = {
    "ssl.keystore.location": "ssl.keystore.type",
    "ssl.truststore.location": "ssl.truststore.type",
}
_TO_PEM = (
    "Java's stores are not read: convert it (keytool -importkeystore ... -deststoretype PKCS12, then openssl pkcs12 "
    "-nodes), and set {type}=PEM"
)
_MODULE = re.compile(r"\s*([\w.$]+)\s")


class FoundLines(Protocol):
    """What reads the file."""

    @property
    def lines(self) -> Mapping[str, JavaProperty]: ...
    @property
    def is_clustered(self) -> bool: ...
    def add(self, one: JavaProperty, name: str, value: str) -> None: ...
    def accept(self, what: str, why: str) -> None: ...
    def problem(self, one: JavaProperty, why: str) -> SettingsError: ...
    def warn(self, text: str) -> None: ...


class ListenerLines:
    def __init__(self, found: FoundLines) -> None:
        self._found = found
        self._special: Mapping[str, Callable[[JavaProperty], None]] = {
            "advertised.listeners": self._read_advertised,
            "inter.broker.listener.name": self._read_inter_broker,
            "listener.security.protocol.map": self._read_protocols,
            "listeners": self._read_listeners,
            "security.inter.broker.protocol": self._read_inter_broker_protocol,
        }

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._special, *_SAME, *_STORES, *_TYPES.values(), *_WITHOUT_EFFECT, *_REFUSED)

    def read(self, one: JavaProperty) -> bool:
        """Return False if the line is about something else.

        Raises:
            SettingsError: the line is refused.
        """
        if one.name in self._special:
            self._special[one.name](one)
            return True
        if one.name.startswith(_OF_LISTENER):
            self._read_own(one)
            return True
        return self._read_security(one, one.name, prefix="", above="")

    def warn_of_defaults(self) -> None:
        """Kafka's default mechanism is not served: a file that relies on it gets a warning."""
        has_login = any(
            ListenerProtocol(self._protocol(name)).has_login
            for name, _ in self._clients("listeners")
            if self._protocol(name) in _PROTOCOLS
        )
        if has_login and not any(
            name.endswith("sasl.enabled.mechanisms") for name in self._found.lines
        ):
            self._found.warn(
                "sasl.enabled.mechanisms is not given: Kafka's default, GSSAPI, is not served; clients log in by "
                "SCRAM-SHA-512"
            )

    # -- listeners ---------------------------------------------------------------------------------------------------

    def _read_listeners(self, one: JavaProperty) -> None:
        found = self._without_controllers(one)
        if not found:
            raise self._found.problem(one, "there is no listener of clients")
        for name, address in found:
            protocol = self._protocol(name)
            if protocol not in _PROTOCOLS:
                raise self._found.problem(
                    one,
                    f"{name} has no protocol: name it in listener.security.protocol.map, as {', '.join(_PROTOCOLS)}",
                )
            host, _, port = address.rpartition(":")
            prefix = self._prefix(name)
            # The protocol first: whether an address may be listened on depends on it.
            if prefix or protocol != ListenerProtocol.PLAINTEXT:
                self._found.add(one, f"{prefix}protocol", protocol)
            self._found.add(one, f"{prefix}listen", f"{host or '0.0.0.0'}:{port}")  # noqa: S104

    def _read_advertised(self, one: JavaProperty) -> None:
        known = {name for name, _ in self._clients("listeners")}
        for name, address in self._without_controllers(one):
            host, _, _ = address.rpartition(":")
            if host in _ANYWHERE:
                raise self._found.problem(
                    one, f"{address!r} is not an address that clients can connect to"
                )
            if known and name not in known:
                raise self._found.problem(one, f"{name} is none of listeners")
            self._found.add(one, f"{self._prefix(name)}advertised", address)

    def _without_controllers(self, one: JavaProperty) -> list[tuple[str, str]]:
        found = self._clients(one.name)
        if len(found) != len(self._listed(one.name)):
            self._found.accept(
                f"the controller's listener in {one.name}", "brokers use a listener of brokers"
            )
        return found

    def _read_protocols(self, one: JavaProperty) -> None:
        for name, protocol in self._map().items():
            if protocol not in _PROTOCOLS:
                raise self._found.problem(
                    one, f"{name}:{protocol} is none of {', '.join(_PROTOCOLS)}"
                )
        if "listeners" not in self._found.lines:
            self._found.accept(one.name, "no listeners are given in this file")

    def _read_inter_broker(self, one: JavaProperty) -> None:
        name = one.value.strip().upper()
        if name in self._controllers():
            raise self._found.problem(one, "is a listener of controllers")
        known = [each for each, _ in self._clients("listeners")]
        if known and name not in known:
            raise self._found.problem(one, f"{name} is none of listeners")
        self._take_inter_broker(one, name)

    def _read_inter_broker_protocol(self, one: JavaProperty) -> None:
        protocol = one.value.strip().upper()
        if "inter.broker.listener.name" in self._found.lines:
            self._found.accept(one.name, "inter.broker.listener.name takes precedence")
            return
        named = [name for name, _ in self._clients("listeners") if self._protocol(name) == protocol]
        if not named and (protocol != ListenerProtocol.PLAINTEXT or self._clients("listeners")):
            raise self._found.problem(one, f"no listener has the protocol {protocol}")
        self._take_inter_broker(one, named[0] if named else "")

    def _take_inter_broker(self, one: JavaProperty, name: str) -> None:
        prefix = self._prefix(name) if name else ""
        if not self._found.is_clustered:
            self._found.accept(one.name, "it matters in a cluster only, and no etcd is given")
        elif not prefix:
            self._found.accept(one.name, "brokers use the listener of clients")
        else:
            self._found.add(one, "inter_broker_listener_name", prefix.split(".")[1])

    # -- TLS and logins ----------------------------------------------------------------------------------------------

    def _read_own(self, one: JavaProperty) -> None:
        """A line of one listener: `listener.name.<name>.<setting>`."""
        listener, _, setting = one.name.removeprefix(_OF_LISTENER).partition(".")
        if listener.upper() in self._controllers():
            self._found.accept(one.name, "brokers use a listener of brokers")
            return
        known = {name for name, _ in self._clients("listeners")}
        if listener.upper() not in known:
            raise self._found.problem(one, f"{listener} is none of listeners")
        above = f"{_OF_LISTENER}{listener}."
        prefix = self._prefix(listener.upper())
        if setting in _LIMITS and prefix:
            self._found.add(one, f"{prefix}{_LIMITS[setting]}", one.value.strip())
        elif setting in _SAME:
            self._found.add(one, f"{prefix}{_SAME[setting]}", one.value.strip())
        elif not self._read_security(one, setting, prefix=prefix, above=above):
            known_here = ", ".join((*_SAME, *_STORES, *_LIMITS))
            raise self._found.problem(
                one, f"one listener has no such setting here, only {known_here}"
            )

    def _read_security(self, one: JavaProperty, setting: str, *, prefix: str, above: str) -> bool:
        """`prefix` is the listener's in our settings, and `above` in Kafka's."""
        value = one.value.strip()
        if setting in _STORES:
            kind = self._value(f"{above}{_TYPES[setting]}") or self._value(_TYPES[setting]) or "JKS"
            if kind.upper() != "PEM":
                raise self._found.problem(one, _TO_PEM.format(type=_TYPES[setting]))
            self._found.add(one, f"{prefix}{_STORES[setting]}", value)
        elif setting in _TYPES.values():
            if value.upper() != "PEM":
                raise self._found.problem(one, _TO_PEM.format(type=setting))
            self._found.accept(one.name, "all files are PEM")
        elif setting in _REFUSED:
            if value:
                raise self._found.problem(one, _REFUSED[setting])
            self._found.accept(one.name, "it is empty")
        elif setting in _WITHOUT_EFFECT:
            values, why = _WITHOUT_EFFECT[setting]
            if values is not None and value.lower() not in {each.lower() for each in values}:
                only = " or ".join(filter(None, values))
                raise self._found.problem(one, why + (f"; accepted is only {only}" if only else ""))
            self._found.accept(one.name, why)
        elif setting == "sasl.jaas.config" or setting.endswith(".sasl.jaas.config"):
            self._read_jaas(one)
        else:
            return False
        return True

    def _read_jaas(self, one: JavaProperty) -> None:
        """Without a word of the entry in a message: it has passwords."""
        module = _MODULE.match(f"{one.value} ")
        name = module[1].rpartition(".")[2] if module else ""
        if name not in ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule"):
            raise self._found.problem(
                one, "Java's login modules cannot be loaded; there is no such login"
            )
        if re.search(r"\buser_\w+\s*=", one.value):
            raise self._found.problem(
                one,
                f"{_PASSWORDS}: add its users with `respool user add`, and leave the line out",
            )
        self._found.accept(one.name, f"users are in the metadata store; {_PEERS}")

    # -- what other lines say ----------------------------------------------------------------------------------------

    def _prefix(self, name: str) -> str:
        """Of this listener's settings; none for that of `listen`.

        Raises:
            SettingsError: only our settings have a listener of this name.
        """
        clients = [each for each, _ in self._clients("listeners")]
        if not clients or clients[0] == name:
            return ""
        return f"listener.{name.lower()}."

    def _protocol(self, name: str) -> str:
        return self._map().get(name, name)

    def _map(self) -> dict[str, str]:
        pairs = (
            each.strip().partition(":")
            for each in self._value("listener.security.protocol.map").split(",")
            if each.strip()
        )
        return {name.upper(): protocol.strip().upper() for name, _, protocol in pairs}

    def _clients(self, line: str) -> list[tuple[str, str]]:
        """The listeners that are not the controllers', with their addresses."""
        controllers = self._controllers()
        return [each for each in self._listed(line) if each[0] not in controllers]

    def _listed(self, line: str) -> list[tuple[str, str]]:
        listed = [each.strip() for each in self._value(line).split(",")]
        return [
            (each.partition("://")[0].upper(), each.partition("://")[2]) for each in listed if each
        ]

    def _controllers(self) -> set[str]:
        named = self._value("controller.listener.names").split(",")
        return {each.strip().upper() for each in named if each.strip()}

    def _value(self, name: str) -> str:
        line = self._found.lines.get(name)
        return "" if line is None else line.value.strip()


assert {*_SAME.values(), *_LIMITS.values(), *_STORES.values()} <= LISTENER_KEYS.keys()
