"""How to reach etcd: where, as whom, how long to wait. Needs no library of etcd's, so anybody may import it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdOptions:
    # http://HOST:PORT or https://HOST:PORT, tried in this order.
    endpoints: tuple[str, ...]
    # All keys lie under /respool/<cluster>/, which those who use the store do not see.
    cluster: str = "respool"
    user: str = ""
    password: str = field(default="", repr=False)
    # Where the password may have changed meanwhile. Raises SettingsError: it cannot be read.
    read_password: Callable[[], str] | None = field(default=None, repr=False, compare=False)
    # Whom to trust (empty: whom this system trusts), and who we are.
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    # Warn of versions with known faults instead of refusing them.
    allow_old_versions: bool = False

    # One member has this long to connect, and to answer what may be asked again elsewhere.
    attempt_timeout_ms: int = 2_000
    # A call as a whole, over all members and attempts; also how long a broken watch is mended.
    request_timeout_ms: int = 5_000
    # A watch on which nothing came this long asks its member for a sign of life.
    watch_ping_ms: int = 3_000
    # Between rounds over all members: doubled each time up to the most, with chance.
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
