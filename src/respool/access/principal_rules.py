"""The ACLs of one principal, compiled: for each pattern the operations that are denied and allowed, as bits.

A decision takes a look-up for the name, one for `*`, and one for each length that a prefix of this principal has. Rules
for hosts take a look-up for the address and one for each length of a network mask, however many networks there are.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from respool.model.security.acl import (
    ANY,
    AclEntry,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    ResourcePattern,
)

_ALL_BITS = sum(1 << operation for operation in AclOperation)
_DESCRIBE = 1 << AclOperation.DESCRIBE
_IMPLIED = {
    AclOperation.READ: _DESCRIBE,
    AclOperation.WRITE: _DESCRIBE,
    AclOperation.DELETE: _DESCRIBE,
    AclOperation.ALTER: _DESCRIBE,
    AclOperation.ALTER_CONFIGS: 1 << AclOperation.DESCRIBE_CONFIGS,
}
# Denied and allowed operations, as bits.
Masks = tuple[int, int]
_NOTHING: Masks = (0, 0)


@dataclass(slots=True, kw_only=True, eq=False)
class Caller:
    """A principal at a host, as the decisions of one authorizer need it."""

    # Rules of the principal and of `User:*`, if there are any.
    rules: "Sequence[PrincipalRules]"
    is_super_user: bool
    host: str
    # The host's address as a number, and its bits; -1: it is not an address.
    address: int
    address_bits: int

    def is_from(self, host: str) -> bool:
        """True if an entry's host applies."""
        if host in (ANY, self.host):
            return True
        if "/" not in host or self.address < 0:
            return False
        bits, shift, number = _network(host)
        return bits == self.address_bits and self.address >> shift == number


def caller_of(
    own: "PrincipalRules | None",
    everyone: "PrincipalRules | None",
    *,
    host: str,
    is_super_user: bool,
) -> Caller:
    address, bits = -1, 0
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        # Not an IP connection, such as a test's: only rules for any host apply.
        pass
    else:
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        host, address, bits = str(parsed), int(parsed), parsed.max_prefixlen
    return Caller(
        rules=tuple(one for one in (own, everyone) if one is not None),
        is_super_user=is_super_user,
        host=host,
        address=address,
        address_bits=bits,
    )


class PrincipalRules:
    __slots__ = ("_by_resource",)

    def __init__(self) -> None:
        self._by_resource: dict[AclResource, _ResourceRules] = {}

    def copy(self) -> "PrincipalRules":
        other = PrincipalRules()
        other._by_resource = {kind: one.copy() for kind, one in self._by_resource.items()}
        return other

    @property
    def is_empty(self) -> bool:
        return not self._by_resource

    def add(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        rules = self._by_resource.get(pattern.resource)
        if rules is None:
            rules = self._by_resource[pattern.resource] = _ResourceRules()
        rules.add(pattern, _Compiled(entries))

    def replace(self, pattern: ResourcePattern, entries: Sequence[AclEntry]) -> None:
        if entries:
            self.add(pattern, entries)
            return
        rules = self._by_resource.get(pattern.resource)
        if rules is not None:
            rules.remove(pattern)
            if not rules.literals and not rules.prefixes:
                del self._by_resource[pattern.resource]

    def masks(self, resource: AclResource, name: str, caller: Caller) -> Masks:
        """The denied and the allowed operations on this resource."""
        rules = self._by_resource.get(resource)
        if rules is None:
            return _NOTHING
        denied = allowed = 0
        found = rules.literals.get(name)
        if found is not None:
            denied, allowed = found.plain if found.hosts is None else found.masks(caller)
        found = rules.any_name
        if found is not None:
            more_denied, more_allowed = found.plain if found.hosts is None else found.masks(caller)
            denied |= more_denied
            allowed |= more_allowed
        if rules.prefixes:
            more_denied, more_allowed = rules.prefix_masks(name, caller)
            denied |= more_denied
            allowed |= more_allowed
        return denied, allowed

    def prefix_masks(self, resource: AclResource, name: str, caller: Caller) -> Masks:
        """The same by prefixes alone: what applies to every name that begins with `name`."""
        rules = self._by_resource.get(resource)
        return _NOTHING if rules is None else rules.prefix_masks(name, caller)

    def any_masks(self, resource: AclResource, caller: Caller) -> Masks:
        """The same by `*` alone: what applies to every name."""
        rules = self._by_resource.get(resource)
        if rules is None or rules.any_name is None:
            return _NOTHING
        return rules.any_name.masks(caller)

    def names(self, resource: AclResource, name: str) -> bool:
        """True if a pattern matches the name."""
        return next(self.patterns(resource, name), None) is not None

    def patterns(self, resource: AclResource, name: str) -> Iterator[ResourcePattern]:
        """The patterns that match the name, the most specific first."""
        rules = self._by_resource.get(resource)
        if rules is None:
            return
        if name in rules.literals:
            yield ResourcePattern(resource, name)
        for length in reversed(rules.lengths):
            if length <= len(name) and name[:length] in rules.prefixes:
                yield ResourcePattern(resource, name[:length], PatternType.PREFIXED)
        if name != ANY and rules.any_name is not None:
            yield ResourcePattern(resource, ANY)

    def names_allowed(
        self, resource: AclResource, bit: int, caller: Caller
    ) -> Iterator[tuple[str, bool]]:
        """Names and prefixes for which an ALLOW of the operation applies; True with a prefix."""
        rules = self._by_resource.get(resource)
        if rules is None:
            return
        for compiled, is_prefix in ((rules.prefixes, True), (rules.literals, False)):
            for name, one in compiled.items():
                if one.masks(caller)[1] & bit:
                    yield name, is_prefix


class _ResourceRules:
    """The rules for resources of one type."""

    __slots__ = ("any_name", "lengths", "literals", "prefixes")

    def __init__(self) -> None:
        self.literals: dict[str, _Compiled] = {}
        # The rules of `*`, which are in `literals` as well.
        self.any_name: _Compiled | None = None
        self.prefixes: dict[str, _Compiled] = {}
        # How many prefixes have each length, in ascending order of length.
        self.lengths: dict[int, int] = {}

    def copy(self) -> "_ResourceRules":
        other = _ResourceRules()
        other.literals, other.prefixes = dict(self.literals), dict(self.prefixes)
        other.any_name, other.lengths = self.any_name, dict(self.lengths)
        return other

    def add(self, pattern: ResourcePattern, compiled: "_Compiled") -> None:
        name = pattern.name
        if pattern.pattern is PatternType.LITERAL:
            self.literals[name] = compiled
            if name == ANY:
                self.any_name = compiled
            return
        if name not in self.prefixes:
            self._count(len(name), 1)
        self.prefixes[name] = compiled

    def remove(self, pattern: ResourcePattern) -> None:
        name = pattern.name
        if pattern.pattern is PatternType.LITERAL:
            self.literals.pop(name, None)
            if name == ANY:
                self.any_name = None
        elif self.prefixes.pop(name, None) is not None:
            self._count(len(name), -1)

    def prefix_masks(self, name: str, caller: Caller) -> Masks:
        denied = allowed = 0
        size, prefixes = len(name), self.prefixes
        for length in self.lengths:
            if length > size:
                break
            found = prefixes.get(name[:length])
            if found is not None:
                more_denied, more_allowed = found.masks(caller)
                denied |= more_denied
                allowed |= more_allowed
        return denied, allowed

    def _count(self, length: int, change: int) -> None:
        counts = self.lengths
        is_new = length not in counts
        counts[length] = counts.get(length, 0) + change
        if not counts[length]:
            del counts[length]
        elif is_new:
            self.lengths = {key: counts[key] for key in sorted(counts)}


class _Compiled:
    """The entries of one pattern and one principal."""

    __slots__ = ("hosts", "networks", "plain")

    def __init__(self, entries: Iterable[AclEntry]) -> None:
        # From the entries for any host.
        self.plain = _NOTHING
        hosts: dict[str, Masks] = {}
        networks: dict[tuple[int, int], dict[int, Masks]] = {}
        for one in entries:
            masks = _masks_of(one)
            if one.host == ANY:
                self.plain = _union(self.plain, masks)
            elif "/" in one.host:
                bits, shift, number = _network(one.host)
                of_mask = networks.setdefault((bits, shift), {})
                of_mask[number] = _union(of_mask.get(number, _NOTHING), masks)
            else:
                hosts[one.host] = _union(hosts.get(one.host, _NOTHING), masks)
        # None: no entry names a host.
        self.hosts = hosts if hosts or networks else None
        # Networks by prefix and by the number of bits that the mask leaves out.
        self.networks = tuple((bits, shift, of_mask) for (bits, shift), of_mask in networks.items())

    def masks(self, caller: Caller) -> Masks:
        if self.hosts is None:
            return self.plain
        denied, allowed = self.plain
        found = self.hosts.get(caller.host)
        if found is not None:
            denied |= found[0]
            allowed |= found[1]
        for bits, shift, of_mask in self.networks:
            if bits == caller.address_bits:
                found = of_mask.get(caller.address >> shift)
                if found is not None:
                    denied |= found[0]
                    allowed |= found[1]
        return denied, allowed


def _masks_of(entry: AclEntry) -> Masks:
    if entry.operation is AclOperation.ALL:
        bits = _ALL_BITS
    else:
        bits = 1 << entry.operation
        if entry.permission is Permission.ALLOW:
            bits |= _IMPLIED.get(entry.operation, 0)
    return (bits, 0) if entry.permission is Permission.DENY else (0, bits)


@lru_cache(maxsize=4_096)
def _network(text: str) -> tuple[int, int, int]:
    """The bits of an address, how many of them the mask leaves out, and the others."""
    network = ipaddress.ip_network(text)
    shift = network.max_prefixlen - network.prefixlen
    return network.max_prefixlen, shift, int(network.network_address) >> shift


def _union(one: Masks, other: Masks) -> Masks:
    return one[0] | other[0], one[1] | other[1]
