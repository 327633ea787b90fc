"""`kafka.security.protocol`, `kafka.ssl.*`, `kafka.sasl.*`: TLS and logins by the names of Kafka's Java client.

Python's own, librdkafka's, are known too (`kafka.ssl.ca.location`, `kafka.sasl.username`). Nothing that may be secret
is in an error message, and nothing is passed over: who asks for more safety than there is must know that it lacks.
"""

import re

from respool.client.kafka.errors import BadArgument
from respool.client.kafka.security import IN_THE_CLEAR, PEM_NEEDED, PLAIN, Login, Security, Tls
from respool.spark.options import BadOption, Options

PROTOCOL = "kafka.security.protocol"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SSL, _SASL = "kafka.ssl.", "kafka.sasl."

_AUTHORITIES = (
    "kafka.ssl.truststore.certificates",
    "kafka.ssl.truststore.location",
    "kafka.ssl.ca.pem",
    "kafka.ssl.ca.location",
)
_CERTIFICATE = (
    "kafka.ssl.keystore.certificate.chain",
    "kafka.ssl.keystore.location",
    "kafka.ssl.certificate.pem",
    "kafka.ssl.certificate.location",
)
_KEY = ("kafka.ssl.keystore.key", "kafka.ssl.key.pem", "kafka.ssl.key.location")
_TYPES = ("kafka.ssl.truststore.type", "kafka.ssl.keystore.type")
_VERSIONS = ("kafka.ssl.protocol", "kafka.ssl.enabled.protocols")
_STORE_PASSWORDS = ("kafka.ssl.truststore.password", "kafka.ssl.keystore.password")
_KEY_PASSWORD = "kafka.ssl.key.password"  # noqa: S105 - a name
_HOST_CHECK = "kafka.ssl.endpoint.identification.algorithm"
_MECHANISM = ("kafka.sasl.mechanism", "kafka.sasl.mechanisms")
_JAAS = "kafka.sasl.jaas.config"
_USERNAME, _PASSWORD = "kafka.sasl.username", "kafka.sasl.password"

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

# MODULE required name="value" name='value' name=value ;
_JAAS_ENTRY = re.compile(
    r"\s*([\w.$]+)\s+(?i:required|requisite|sufficient|optional)\s+(.*?);\s*", re.DOTALL
)
_JAAS_OPTION = re.compile(
    r"""\s*(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';]+)""", re.DOTALL
)
_MODULES = {"PlainLoginModule": (PLAIN,), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}


def security_of(options: Options) -> Security:
    """
    Raises:
        BadOption: brokers are to be reached in a way that this client does not know, or that contradicts itself.
    """
    protocol = options.choice(PROTOCOL, _PROTOCOLS, "PLAINTEXT")
    _refuse_others(options, protocol)
    if protocol == "PLAINTEXT":
        return IN_THE_CLEAR
    try:
        return Security(
            tls=_tls(options) if "SSL" in protocol else None,
            login=_login(options) if "SASL" in protocol else None,
        )
    except BadArgument as error:
        raise BadOption(f"{PROTOCOL} = {protocol!r}: {error}") from None


def _refuse_others(options: Options, protocol: str) -> None:
    known = {name.lower() for name in NAMES}
    for name in options.names():
        prefix = next((one for one in (_SSL, _SASL) if name.startswith(one)), None)
        if prefix is None and name != "kafka.security.providers":
            continue
        if name in _STORE_PASSWORDS:
            raise BadOption(f"{name}: stores with a password of their own are Java's. {PEM_NEEDED}")
        if name not in known:
            raise BadOption(
                f"{name}: this client has TLS 1.2 and 1.3 by OpenSSL, with its own choice of ciphers, and logins by "
                "PLAIN and SCRAM; there is nothing like this in it. Nothing was sent"
            )
        wanted = "SSL" if prefix == _SSL else "SASL"
        if wanted not in protocol:
            raise BadOption(
                f"{name} is given, and {PROTOCOL} = {protocol!r} would not use it: {wanted} must be in that. "
                "Nothing was sent"
            )


def _tls(options: Options) -> Tls:
    for name in _TYPES:
        kind = options.text(name, "PEM")
        if kind is not None and kind.upper() != "PEM":
            raise BadOption(
                f"{name} = {kind!r}: there is no Java here that could read it. {PEM_NEEDED}"
            )
    return Tls(
        authorities=_one_of(options, _AUTHORITIES),
        certificate=_one_of(options, _CERTIFICATE),
        key=_one_of(options, _KEY),
        key_password=options.as_given(_KEY_PASSWORD),
        checks_host=options.choice(_HOST_CHECK, ("https", "none", ""), "https") == "https",
        newest_only=_newest_only(options),
    )


def _newest_only(options: Options) -> bool:
    """Whether TLS 1.2 is not enough."""
    given = [options.text(name) for name in _VERSIONS]
    wanted = {one.strip() for each in given if each for one in each.split(",")}
    if wanted - {"TLS", "TLSv1.2", "TLSv1.3"}:
        raise BadOption(f"{_VERSIONS[1]}: TLSv1.2 and TLSv1.3 are safe, and all that there is here")
    enabled = {one.strip() for one in (options.text(_VERSIONS[1]) or "").split(",")}
    return enabled == {"TLSv1.3"}


def _login(options: Options) -> Login:
    mechanism = _one_of(options, _MECHANISM)
    if mechanism is None:
        raise BadOption(
            f"{_MECHANISM[0]} is missing: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (Kafka's default, GSSAPI, is Kerberos, "
            "which this client does not speak)"
        )
    username, password = options.text(_USERNAME), options.as_given(_PASSWORD)
    if options.has(_JAAS):
        if username is not None or password is not None:
            raise BadOption(f"{_JAAS} and {_USERNAME} contradict each other: give one of them")
        username, password = _read_jaas(options.text(_JAAS) or "", mechanism)
    return Login(mechanism=mechanism, username=username or "", password=password or "")


def _read_jaas(text: str, mechanism: str) -> tuple[str | None, str | None]:
    """Username and password of a login module's line. What is in it is not repeated: it has the password."""
    entry = _JAAS_ENTRY.fullmatch(text)
    if entry is None:
        raise BadOption(f"{_JAAS}: one entry is needed: MODULE required username=... password=...;")
    module = entry[1].rpartition(".")[2]
    if mechanism not in _MODULES.get(module, ()):
        raise BadOption(f"{_JAAS}: {module} is no module for {_MECHANISM[0]} = {mechanism!r}")
    given: dict[str, str] = {}
    at = 0
    while at < len(entry[2].rstrip()):
        found = _JAAS_OPTION.match(entry[2], at)
        if found is None:
            raise BadOption(f'{_JAAS}: after the module come options, each as name="value"')
        given[found[1]] = _unquoted(found[2])
        at = found.end()
    if given.keys() - {"username", "password"}:
        # Not which: a quote that is not closed makes names of what is none.
        raise BadOption(f"{_JAAS}: username and password are all that is known here")
    return given.get("username"), given.get("password")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text[0] in "\"'" else text


def _one_of(options: Options, names: tuple[str, ...]) -> str | None:
    """The value of whichever name was used."""
    given = [name for name in names if options.has(name)]
    if len(given) > 1:
        raise BadOption(f"{given[0]} and {given[1]} contradict each other: give one of them")
    return options.text(given[0]) if given else None
