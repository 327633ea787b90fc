"""`security.protocol`, `ssl.*`, `sasl.*`: TLS and logins by the property names of Kafka's Java client and librdkafka.

    security.protocol=SASL_SSL                security_of(properties)        -> Security(tls=..., login=...)
    ssl.ca.location=/etc/kafka/ca.pem         library_settings(security)     -> the same for confluent-kafka
    sasl.mechanism=SCRAM-SHA-512

A setting that asks for security that this client does not support is refused, not ignored. No error message repeats a
value that may be secret.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from respool.client.kafka.errors import BadArgument
from respool.client.kafka.security import (
    IN_THE_CLEAR,
    PEM_MARK,
    PEM_NEEDED,
    PLAIN,
    Login,
    Security,
    Tls,
)

PROTOCOL = "security.protocol"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# The prefixes of all security properties.
PREFIXES = ("security.", "ssl.", "sasl.")

_AUTHORITIES = (
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.ca.pem",
    "ssl.ca.location",
)
_CERTIFICATE = (
    "ssl.keystore.certificate.chain",
    "ssl.keystore.location",
    "ssl.certificate.pem",
    "ssl.certificate.location",
)
_KEY = ("ssl.keystore.key", "ssl.key.pem", "ssl.key.location")
_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_VERSIONS = ("ssl.protocol", "ssl.enabled.protocols")
_STORE_PASSWORDS = ("ssl.truststore.password", "ssl.keystore.password")
_KEY_PASSWORD = "ssl.key.password"  # noqa: S105 - a name
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
_JAAS = "sasl.jaas.config"
_USERNAME, _PASSWORD = "sasl.username", "sasl.password"

NAMES = (
    PROTOCOL,
    *_AUTHORITIES,
    *_CERTIFICATE,
    *_KEY,
    *_TYPES,
    *_VERSIONS,
    _KEY_PASSWORD,
    _HOST_CHECK,
    *_MECHANISM,
    _JAAS,
    _USERNAME,
    _PASSWORD,
)

_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
# MODULE required name="value" name='value' name=value ;
_JAAS_ENTRY = re.compile(
    r"\s*([\w.$]+)\s+(?i:required|requisite|sufficient|optional)\s+(.*?);\s*", re.DOTALL
)
_JAAS_OPTION = re.compile(
    r"""\s*(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';]+)""", re.DOTALL
)
_MODULES = {"PlainLoginModule": (PLAIN,), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}


def security_of(properties: Mapping[str, str], *, prefix: str = "") -> Security:
    """Parse `properties`, named as in Kafka, each after `prefix`. Other names are ignored.

    Raises:
        BadArgument: this client does not support such a connection, or two properties contradict each other.
    """
    given = _Given(properties, prefix)
    protocol = given.choice(PROTOCOL, PROTOCOLS, "PLAINTEXT")
    _refuse_unusable(given, protocol)
    if protocol == "PLAINTEXT":
        return IN_THE_CLEAR
    tls = _tls_fields(given) if "SSL" in protocol else None
    login = _login_fields(given) if "SASL" in protocol else None
    try:
        return Security(
            tls=None if tls is None else Tls(**tls), login=None if login is None else Login(**login)
        )
    except BadArgument as error:
        raise BadArgument(f"{given.name(PROTOCOL)} = {protocol!r}: {error}") from None


def properties_of(security: Security) -> dict[str, str]:
    """The properties from which `security_of` makes this security; none for a connection in the clear."""
    tls, login = security.tls, security.login
    if security == IN_THE_CLEAR:
        return {}
    channel = "PLAINTEXT" if tls is None else "SSL"
    properties = {PROTOCOL: channel if login is None else f"SASL_{channel}"}
    if tls is not None:
        properties |= _pem_setting("ssl.ca", tls.authorities)
        properties |= _pem_setting("ssl.certificate", tls.certificate)
        properties |= _pem_setting("ssl.key", tls.key)
        if tls.key_password is not None:
            properties[_KEY_PASSWORD] = tls.key_password
        if tls.newest_only:
            properties[_VERSIONS[1]] = "TLSv1.3"
        properties[_HOST_CHECK] = "https" if tls.checks_host else "none"
    if login is not None and login.is_token:
        properties |= {_MECHANISM[0]: login.mechanism, _JAAS: jaas_of_token(login)}
    elif login is not None:
        properties |= {
            _MECHANISM[0]: login.mechanism,
            _USERNAME: login.username,
            _PASSWORD: login.password,
        }
    return properties


def jaas_of_token(login: Login) -> str:
    """The login by a delegation token as Java's clients are given it; there is no other property for it."""
    named = {"username": login.username, "password": login.password}
    options = " ".join(f'{name}="{_quoted(value)}"' for name, value in named.items())
    return f'{_SCRAM_MODULE} required {options} tokenauth="true";'


def library_settings(security: Security) -> dict[str, str]:
    """The same security as settings of confluent-kafka (librdkafka).

    Raises:
        BadArgument: librdkafka has no equivalent setting.
    """
    settings = {PROTOCOL: "PLAINTEXT", **properties_of(security)}
    tls = security.tls
    if security.login is not None and security.login.is_token:
        raise BadArgument(
            "librdkafka has no logins by delegation tokens: Java's clients and Respool's tables, Spark source and "
            "admin commands have"
        )
    if tls is not None:
        if tls.newest_only:
            raise BadArgument(
                "TLS 1.3 alone cannot be asked of librdkafka: allow TLSv1.2 as well, or require 1.3 at the brokers"
            )
        if tls.key is None:
            settings |= _pem_setting("ssl.key", tls.certificate)
    return settings


class _Given:
    """Properties by their names without the prefix; error messages include the prefix."""

    def __init__(self, properties: Mapping[str, str], prefix: str) -> None:
        self._prefix = prefix
        self._values = {
            name.removeprefix(prefix): value
            for name, value in properties.items()
            if name.startswith(prefix)
        }

    def name(self, name: str) -> str:
        return self._prefix + name

    def names(self) -> Collection[str]:
        return self._values.keys()

    def has(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        return None if value is None else value.strip()

    def secret(self, name: str) -> str | None:
        """The value with surrounding blanks: they may be part of a password."""
        return self._values.get(name)

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """One of these words, case-insensitive."""
        text = self.text(name)
        for one in choices:
            if (default if text is None else text).lower() == one.lower():
                return one
        raise BadArgument(
            f"{self.name(name)} = {text!r}: it may be {' or '.join(map(repr, choices))}"
        )

    def one_of(self, names: tuple[str, ...]) -> str | None:
        """The value of a property that has several names; more than one of them is an error."""
        used = [name for name in names if self.has(name)]
        if len(used) > 1:
            raise BadArgument(
                f"{self.name(used[0])} and {self.name(used[1])} contradict each other: give one of them"
            )
        return self.text(used[0]) if used else None


def _refuse_unusable(given: _Given, protocol: str) -> None:
    for name in given.names():
        if name == PROTOCOL or not name.startswith(PREFIXES):
            continue
        if name in _STORE_PASSWORDS:
            raise BadArgument(
                f"{given.name(name)}: stores with a password of their own are Java's. {PEM_NEEDED}"
            )
        if name.startswith("security.") and name != "security.providers":
            raise BadArgument(
                f"{given.name(name)}: there is no such property; did you mean {given.name(PROTOCOL)!r}? "
                "Nothing was sent"
            )
        if name not in NAMES:
            raise BadArgument(
                f"{given.name(name)}: this client has TLS 1.2 and 1.3 by OpenSSL, with its own choice of ciphers, and "
                "logins by PLAIN and SCRAM; there is nothing like this in it. Nothing was sent"
            )
        needed = "SSL" if name.startswith("ssl.") else "SASL"
        if needed not in protocol:
            raise BadArgument(
                f"{given.name(name)} is given, and {given.name(PROTOCOL)} = {protocol!r} would not use it: "
                f"{needed} must be in that. Nothing was sent"
            )


def _tls_fields(given: _Given) -> dict[str, Any]:
    for name in _TYPES:
        kind = given.text(name)
        if kind is not None and kind.upper() != "PEM":
            raise BadArgument(
                f"{given.name(name)} = {kind!r}: there is no Java here that could read it. {PEM_NEEDED}"
            )
    return {
        "authorities": given.one_of(_AUTHORITIES),
        "certificate": given.one_of(_CERTIFICATE),
        "key": given.one_of(_KEY),
        "key_password": given.secret(_KEY_PASSWORD),
        "checks_host": given.choice(_HOST_CHECK, ("https", "none", ""), "https") == "https",
        "newest_only": _newest_only(given),
    }


def _newest_only(given: _Given) -> bool:
    """True if TLS 1.3 is the only enabled protocol."""
    versions = [given.text(name) for name in _VERSIONS]
    wanted = {one.strip() for each in versions if each for one in each.split(",")}
    if wanted - {"TLS", "TLSv1.2", "TLSv1.3"}:
        raise BadArgument(
            f"{given.name(_VERSIONS[1])}: TLSv1.2 and TLSv1.3 are safe, and all that there is here"
        )
    return {one.strip() for one in (versions[1] or "").split(",")} == {"TLSv1.3"}


def _login_fields(given: _Given) -> dict[str, Any]:
    mechanism = given.one_of(_MECHANISM)
    if mechanism is None:
        raise BadArgument(
            f"{given.name(_MECHANISM[0])} is missing: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (Kafka's default, GSSAPI, "
            "is Kerberos, which this client does not speak)"
        )
    username, password = given.text(_USERNAME), given.secret(_PASSWORD)
    is_token = False
    jaas = given.text(_JAAS)
    if jaas is not None:
        if username is not None or password is not None:
            raise BadArgument(
                f"{given.name(_JAAS)} and {given.name(_USERNAME)} contradict each other: give one of them"
            )
        username, password, is_token = _read_jaas(given, jaas, mechanism)
    return {
        "mechanism": mechanism,
        "username": username or "",
        "password": password or "",
        "is_token": is_token,
    }


def _read_jaas(given: _Given, text: str, mechanism: str) -> tuple[str | None, str | None, bool]:
    """Username, password and whether they are a delegation token's, from a JAAS entry.

    Errors do not repeat the entry: it contains the password.
    """
    name = given.name(_JAAS)
    entry = _JAAS_ENTRY.fullmatch(text)
    if entry is None:
        raise BadArgument(
            f"{name}: one entry is needed: MODULE required username=... password=...;"
        )
    module = entry[1].rpartition(".")[2]
    if mechanism not in _MODULES.get(module, ()):
        raise BadArgument(
            f"{name}: {module} is no module for {given.name(_MECHANISM[0])} = {mechanism!r}"
        )
    options: dict[str, str] = {}
    at = 0
    while at < len(entry[2].rstrip()):
        found = _JAAS_OPTION.match(entry[2], at)
        if found is None:
            raise BadArgument(f'{name}: after the module come options, each as name="value"')
        options[found[1]] = _unquoted(found[2])
        at = found.end()
    known = {"username", "password"} | (set() if mechanism == PLAIN else {"tokenauth"})
    if options.keys() - known:
        # Names are not repeated: after an unclosed quote, parts of the password look like names.
        raise BadArgument(
            f"{name}: username, password and, by SCRAM, tokenauth are all that is known here"
        )
    tokenauth = options.get("tokenauth", "false").lower()
    if tokenauth not in ("true", "false"):
        raise BadArgument(f"{name}: tokenauth is true or false")
    return options.get("username"), options.get("password"), tokenauth == "true"


def _quoted(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text[0] in "\"'" else text


def _pem_setting(name: str, pem: str | None) -> dict[str, str]:
    if pem is None:
        return {}
    return {f"{name}.{'pem' if PEM_MARK in pem else 'location'}": pem}
