"""Connection options for etcd. Imports no etcd library."""

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdOptions:
    # http://HOST:PORT or https://HOST:PORT, tried in this order.
    endpoints: tuple[str, ...]
    # Prefix of all keys, /respool/<cluster>/, hidden from users of the store.
    cluster: str = "respool"
    user: str = ""
    password: str = field(default="", repr=False)
    # Reads the current password. Raises SettingsError if it cannot be read.
    read_password: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    # CA bundle (empty: the system's), and our certificate and key.
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    # Warn about versions with known faults instead of refusing them.
    allow_old_versions: bool = False

    # Time limit for one member to connect, and to reply to a repeatable request.
    attempt_timeout_ms: int = 2_000
    # Time limit of a call over all members and attempts; also for repairing a broken watch.
    request_timeout_ms: int = 5_000
    # After this time without a message, a watch checks whether its member is alive.
    watch_ping_ms: int = 3_000
    # Exponential backoff with jitter between rounds over all members.
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000

    def __post_init__(self) -> None:
        assert self.endpoints, "at least one endpoint"
        assert self.cluster
        assert "/" not in self.cluster
        assert 0 < self.attempt_timeout_ms <= self.request_timeout_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    url: str
    host: str
    port: int
    is_tls: bool


def endpoint_of(url: str) -> Endpoint:
    parts = urlsplit(url)
    assert parts.scheme in {"http", "https"}, url
    assert parts.hostname, url
    assert parts.port, url
    return Endpoint(url=url, host=parts.hostname, port=parts.port, is_tls=parts.scheme == "https")
