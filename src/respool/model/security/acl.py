"""ACLs as values: Kafka's operations and resource types, patterns of resources, entries, and what makes one valid.

An ACL is an entry of a pattern: `User:alice` from any host is allowed to READ the topics that begin with `orders-`.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from respool.model.errors import InvalidRequest
from respool.model.security.principal import Principal

# Matches any principal, host or resource name.
ANY = "*"
EVERYONE = "User:*"
# The only name of a cluster resource.
CLUSTER_NAME = "kafka-cluster"
# ::ffff:0:0/96 are the IPv4 addresses as IPv6 ones. Addresses of clients never have this form.
_MAPPED_BITS = 96


class AclOperation(IntEnum):
    """Kafka's numbers."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclResource(IntEnum):
    """Kafka's numbers."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Permission(IntEnum):
    """Kafka's numbers."""

    DENY = 2
    ALLOW = 3


class PatternType(IntEnum):
    """Kafka's numbers."""

    LITERAL = 3
    PREFIXED = 4


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

GROUP_OPERATIONS = _bits(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)

CLUSTER_OPERATIONS = _bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.CLUSTER_ACTION,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)

# The operations that a resource has, as bits (KIP-430).
OPERATIONS: Mapping[AclResource, int] = {
    AclResource.TOPIC: TOPIC_OPERATIONS,
    AclResource.GROUP: GROUP_OPERATIONS,
    AclResource.CLUSTER: CLUSTER_OPERATIONS,
    AclResource.TRANSACTIONAL_ID: _bits(AclOperation.DESCRIBE, AclOperation.WRITE),
    AclResource.DELEGATION_TOKEN: _bits(AclOperation.DESCRIBE),
    AclResource.USER: _bits(AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}


# The operations of entries. DeleteTopics asks for DELETE of the cluster, though Kafka does not list it as an operation.
_ACCEPTED: Mapping[AclResource, int] = {
    **{kind: bits | 1 << AclOperation.ALL for kind, bits in OPERATIONS.items()},
    AclResource.CLUSTER: CLUSTER_OPERATIONS | _bits(AclOperation.ALL, AclOperation.DELETE),
}


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """Resources of one type: a single one, all of them (`*`), or those whose names begin with a prefix."""

    resource: AclResource
    name: str
    pattern: PatternType = PatternType.LITERAL

    def matches(self, resource: AclResource, name: str) -> bool:
        if resource is not self.resource:
            return False
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY)

    def __str__(self) -> str:
        return f"{self.pattern.name} {self.resource.name} {self.name!r}"


@dataclass(frozen=True, slots=True)
class AclEntry:
    # As text, `User:alice`; `User:*` is everyone.
    principal: str
    operation: AclOperation
    permission: Permission = Permission.ALLOW
    # An address, a network such as 10.0.0.0/8, or `*`.
    host: str = ANY

    def __str__(self) -> str:
        return f"{self.permission.name} {self.operation.name} to {self.principal} from {self.host}"


@dataclass(frozen=True, slots=True)
class AclBinding:
    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        return f"{self.entry} on {self.pattern}"


@dataclass(frozen=True, slots=True)
class StoredAcls:
    """The entries of one pattern, as stored."""

    entries: tuple[AclEntry, ...]
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Selects ACLs; None matches everything. `matches_name` is Kafka's MATCH: selects all patterns that apply to the
    named resource.
    """

    resource: AclResource | None = None
    name: str | None = None
    pattern: PatternType | None = None
    matches_name: bool = False
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: Permission | None = None

    def selects_pattern(self, one: ResourcePattern) -> bool:
        if self.resource is not None and one.resource is not self.resource:
            return False
        if self.pattern is not None and one.pattern is not self.pattern:
            return False
        if self.name is None:
            return True
        if self.matches_name:
            return one.matches(one.resource, self.name)
        return one.name == self.name

    def selects_entry(self, one: AclEntry) -> bool:
        return (
            self.principal in (None, one.principal)
            and self.host in (None, one.host)
            and self.operation in (None, one.operation)
            and self.permission in (None, one.permission)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclImage:
    """All ACLs of the cluster. A change of one pattern replaces its value as a whole."""

    by_pattern: Mapping[ResourcePattern, StoredAcls] = field(default_factory=dict)
    count: int = 0


def checked_host(host: str) -> str:
    """Return the host of an entry in the form in which it is compared.

    Raises:
        InvalidRequest: it is neither `*` nor an address nor a network. Kept as text, it would match nothing, and a DENY
            would deny nothing.
    """
    if host == ANY:
        return host
    try:
        if "/" in host:
            return _network_text(host)
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise InvalidRequest(
            f"host {host!r} is not an address, a network such as 10.0.0.0/8, or *: {error}"
        ) from None
    if getattr(address, "scope_id", None):
        raise InvalidRequest(f"host {host!r}: an address of an ACL has no zone")
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _network_text(host: str) -> str:
    network = ipaddress.ip_network(host)
    if getattr(network.network_address, "scope_id", None):
        raise ValueError("it has a zone")
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= _MAPPED_BITS:
        return f"{mapped}/{network.prefixlen - _MAPPED_BITS}"
    return str(network)


def check_acl(binding: AclBinding) -> AclBinding:
    """Return the ACL as it is stored.

    Raises:
        InvalidRequest: it is not an ACL, or no request could ever match it.
    """
    pattern, entry = binding.pattern, binding.entry
    if not pattern.name:
        raise InvalidRequest("Resource name should not be empty")
    if not pattern.name.isprintable():
        raise InvalidRequest(f"the resource name {pattern.name!r} has unprintable characters")
    if pattern.resource is AclResource.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidRequest(
            f"the cluster's name is {CLUSTER_NAME!r}, not {pattern.name!r}: such an ACL would apply to nothing"
        )
    if pattern.resource is AclResource.CLUSTER and pattern.pattern is not PatternType.LITERAL:
        raise InvalidRequest("an ACL of the cluster has a literal name")
    if not entry.principal.isprintable():
        raise InvalidRequest(f"the principal {entry.principal!r} has unprintable characters")
    Principal.parse(entry.principal)
    if not _ACCEPTED[pattern.resource] >> entry.operation & 1:
        raise InvalidRequest(
            f"{entry.operation.name} is not an operation on a {pattern.resource.name.lower()}"
        )
    stored = AclEntry(
        principal=entry.principal,
        operation=entry.operation,
        permission=entry.permission,
        host=checked_host(entry.host),
    )
    return AclBinding(pattern, stored)


class AccessMode(StrEnum):
    """What the cluster does with its ACLs. One switch for all brokers."""

    # ACLs are stored but not consulted.
    OFF = "off"
    # Decisions are logged, and ACLs refuse nothing.
    OBSERVE = "observe"
    ENFORCE = "enforce"
