"""The ports of a broker: everything outside it."""

from dataclasses import dataclass, field

from respool.ports.audit_sink import AuditSink
from respool.ports.clock import Clock
from respool.ports.disk import Disk
from respool.ports.identity_keys import IdentityKeys
from respool.ports.local_reader import LocalReader
from respool.ports.log_levels import LogLevels
from respool.ports.metadata_store import MetadataStore
from respool.ports.metrics import Metrics
from respool.ports.object_store import ObjectStore
from respool.ports.offload import Offload
from respool.ports.peers import Peers
from respool.ports.random_source import RandomSource
from respool.ports.record_scan import RecordScanner
from respool.records.plain_scan import PlainScanner


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    clock: Clock
    disk: Disk
    store: MetadataStore
    offload: Offload
    metrics: Metrics
    rng: RandomSource
    scanner: RecordScanner = field(default_factory=PlainScanner)
    # The other brokers of a cluster; None for a single broker with a store of its own.
    peers: Peers | None = None
    # Reads files that leaders on this host name; None: no local reads.
    local_reader: LocalReader | None = None
    # Where the audit log goes; None: to the log.
    audit: AuditSink | None = None
    # The keys of an identity provider; None: there is none, so nobody logs in by OAUTHBEARER.
    identity_keys: IdentityKeys | None = None
    # The key of delegation tokens; empty: there are none.
    token_secret: bytes = field(default=b"", repr=False)
    # The archive's object store; None: there is no archive.
    objects: ObjectStore | None = None
    # None: the process's loggers are not this broker's.
    log_levels: LogLevels | None = None
