"""Decides by ACLs, with Kafka's rules. The index is immutable; a decision takes about a microsecond.

In this order: a super user may do everything; a DENY that applies refuses; an ALLOW that applies allows; otherwise the
request is refused. An ACL applies if its pattern matches the resource, and its entry the principal, the host and the
operation. ALLOW of READ, WRITE, DELETE or ALTER allows DESCRIBE, and ALLOW of ALTER_CONFIGS allows DESCRIBE_CONFIGS; a
DENY implies nothing. The index is split by principal: other principals' ACLs cost nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from respool.access.principal_rules import Caller, PrincipalRules, caller_of
from respool.model.security.acl import (
    ANY,
    EVERYONE,
    AclBinding,
    AclEntry,
    AclImage,
    AclOperation,
    AclResource,
    Permission,
    ResourcePattern,
)

_IMPLIES_DESCRIBE = frozenset(
    {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    is_allowed: bool
    # The ACL that decided; None: a super user, or no ACL applies.
    acl: AclBinding | None = None
    # A sentence for the operator.
    why: str


class Authorizer:
    def __init__(
        self,
        acls: AclImage | None = None,
        *,
        super_users: Iterable[str] = (),
        allows_without_acl: bool = False,
        index: "_Index | None" = None,
    ) -> None:
        """`allows_without_acl`: resources without ACLs are open to everyone, as with Kafka's
        `allow.everyone.if.no.acl.found`. `index`: the index of these ACLs, if it exists already."""
        self._acls = acls or AclImage()
        self._super_users = frozenset(super_users)
        self._allows_without_acl = allows_without_acl
        self._index = index or _Index.of(self._acls)
        self._rules, self._named = self._index.rules, self._index.named

    def with_changes(self, acls: AclImage, changed: Iterable[ResourcePattern]) -> "Authorizer":
        """Return an authorizer for an image that differs in these patterns only. This one is unchanged."""
        return Authorizer(
            acls,
            super_users=self._super_users,
            allows_without_acl=self._allows_without_acl,
            index=self._index.with_changes(self._acls, acls, changed),
        )

    def is_super_user(self, principal: str) -> bool:
        return principal in self._super_users

    def caller(self, principal: str, host: str) -> Caller:
        """What the decisions about one client need; valid for this authorizer only."""
        return caller_of(
            self._rules.get(principal),
            self._rules.get(EVERYONE) if principal != EVERYONE else None,
            host=host,
            is_super_user=principal in self._super_users,
        )

    def allows(
        self, caller: Caller, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        if caller.is_super_user:
            return True
        bit = 1 << operation
        is_allowed = False
        for rules in caller.rules:
            denied, allowed = rules.masks(resource, name, caller)
            if denied & bit:
                return False
            if allowed & bit:
                is_allowed = True
        if not is_allowed and self._allows_without_acl:
            return not self._named.names(resource, name)
        return is_allowed

    def allows_any(self, caller: Caller, operation: AclOperation, resource: AclResource) -> bool:
        """True if there could be a resource of the type with which the caller may do this.

        An ALLOW that a DENY covers completely does not count (Kafka's authorizeByResourceType).
        """
        if caller.is_super_user:
            return True
        bit = 1 << operation
        if any(rules.any_masks(resource, caller)[0] & bit for rules in caller.rules):
            return False
        if self._allows_without_acl and not self._named.names(resource, ANY):
            # There are always names that no ACL mentions.
            return True
        for rules in caller.rules:
            for name, is_prefix in rules.names_allowed(resource, bit, caller):
                if name == ANY and not is_prefix:
                    return True
                masks = [one.prefix_masks(resource, name, caller) for one in caller.rules]
                if any(denied & bit for denied, _ in masks):
                    continue
                # A literal DENY covers one name of a prefix only.
                if is_prefix or self.allows(caller, operation, resource, name):
                    return True
        return False

    def explain(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource: AclResource,
        name: str,
    ) -> AccessDecision:
        """The same decision as `allows`, with the ACL that decided. Slow: it looks at all ACLs that match the name."""
        if principal in self._super_users:
            return AccessDecision(is_allowed=True, why=f"{principal} is a super user")
        caller = self.caller(principal, host)
        allowing: AclBinding | None = None
        is_named = False
        for pattern in self._named.patterns(resource, name):
            is_named = True
            for entry in entries_of(self._acls, pattern):
                if not _applies(entry, principal, operation, caller):
                    continue
                acl = AclBinding(pattern, entry)
                if entry.permission is Permission.DENY:
                    return AccessDecision(is_allowed=False, acl=acl, why=f"denied by: {acl}")
                allowing = allowing or acl
        if allowing is not None:
            return AccessDecision(is_allowed=True, acl=allowing, why=f"allowed by: {allowing}")
        if not is_named and self._allows_without_acl:
            return AccessDecision(
                is_allowed=True,
                why="no ACL names the resource, and allow_everyone_if_no_acl_found is set",
            )
        return AccessDecision(is_allowed=False, why="no ACL allows it")


@dataclass(frozen=True, slots=True)
class _Index:
    rules: Mapping[str, PrincipalRules]
    # The patterns of all principals: which resources some ACL names.
    named: PrincipalRules

    @classmethod
    def of(cls, acls: AclImage) -> Self:
        rules: dict[str, PrincipalRules] = {}
        named = PrincipalRules()
        for pattern, stored in acls.by_pattern.items():
            named.add(pattern, stored.entries)
            for principal, entries in _by_principal(stored.entries).items():
                rules.setdefault(principal, PrincipalRules()).add(pattern, entries)
        return cls(rules, named)

    def with_changes(
        self, before: AclImage, after: AclImage, changed: Iterable[ResourcePattern]
    ) -> "_Index":
        named, rules = self.named.copy(), dict(self.rules)
        copied: set[str] = set()
        for pattern in changed:
            entries = entries_of(after, pattern)
            named.replace(pattern, entries)
            new = _by_principal(entries)
            for principal in dict.fromkeys([*_by_principal(entries_of(before, pattern)), *new]):
                if principal not in copied:
                    copied.add(principal)
                    rules[principal] = rules.get(principal, PrincipalRules()).copy()
                rules[principal].replace(pattern, new.get(principal, ()))
        return _Index({one: each for one, each in rules.items() if not each.is_empty}, named)


def entries_of(acls: AclImage, pattern: ResourcePattern) -> tuple[AclEntry, ...]:
    stored = acls.by_pattern.get(pattern)
    return () if stored is None else stored.entries


def _by_principal(entries: Iterable[AclEntry]) -> dict[str, list[AclEntry]]:
    found: dict[str, list[AclEntry]] = {}
    for one in entries:
        found.setdefault(one.principal, []).append(one)
    return found


def _applies(entry: AclEntry, principal: str, operation: AclOperation, caller: Caller) -> bool:
    if entry.principal not in (principal, EVERYONE) or not caller.is_from(entry.host):
        return False
    if entry.operation in (operation, AclOperation.ALL):
        return True
    if entry.permission is Permission.DENY:
        return False
    if operation is AclOperation.DESCRIBE:
        return entry.operation in _IMPLIES_DESCRIBE
    return (
        operation is AclOperation.DESCRIBE_CONFIGS and entry.operation is AclOperation.ALTER_CONFIGS
    )
