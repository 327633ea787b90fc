"""Clients' requests to create and delete ACLs.

A write has the ACLs of whole patterns. Where one request needs several writes, its DENY entries come into force first
and go last, so that nobody may do in between what they may do neither before nor afterwards.

`keeps_alter`: ACLs are enforced, and there are no super users. What would leave nobody who may change ACLs is refused
then; the rest of the request is carried out.
"""

from collections.abc import Iterable, Sequence

from respool.cluster import access_keys
from respool.cluster.access.authorization_mode import (
    CLUSTER,
    NOBODY_LEFT,
    gives_alter,
    may_somebody_alter,
)
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.cluster.view import ClusterView
from respool.model.errors import InvalidRequest, PolicyViolation, RequestError
from respool.model.security.acl import (
    AclBinding,
    AclEntry,
    AclFilter,
    Permission,
    ResourcePattern,
    check_acl,
)
from respool.ports.metadata_store import KEY_BYTES_MAX, VALUE_BYTES_MAX

NOBODY_LEFT_REFUSED = PolicyViolation(NOBODY_LEFT)

Entries = dict[ResourcePattern, list[AclEntry]]


def create_acls(
    view: ClusterView,
    asked: Sequence[AclBinding | RequestError],
    *,
    acls_max: int,
    keeps_alter: bool = False,
) -> tuple[list[RequestError | None], list[GuardedWrite]]:
    """Return what becomes of each ACL, and the writes. Those that exist already are created, too.

    `asked` has an error in the place of what is no ACL.
    """
    results: list[RequestError | None] = []
    changed: Entries = {}
    count = view.image.acls.count
    for one in asked:
        try:
            if isinstance(one, RequestError):
                raise one
            acl = _checked(one)
            entries = changed.get(acl.pattern) or [*_entries(view, acl.pattern)]
            if acl.entry not in entries:
                _check_room(acl, entries, count=count, acls_max=acls_max)
                changed[acl.pattern] = [*entries, acl.entry]
                count += 1
        except RequestError as error:
            results.append(error)
        else:
            results.append(None)
    if keeps_alter and _leaves_nobody(changed):
        locking = [_if_it_locks(one, Permission.DENY) for one in asked]
        return create_acls(view, locking, acls_max=acls_max)
    ordered = sorted(changed, key=lambda one: not _denies(changed[one]))
    return results, _writes(view, {one: changed[one] for one in ordered}, "ACLs created")


def delete_acls(
    view: ClusterView,
    filters: Sequence[AclFilter | RequestError],
    *,
    keeps_alter: bool = False,
) -> tuple[list[list[AclBinding] | RequestError], list[GuardedWrite]]:
    """Return the ACLs that each filter selects, and the writes that delete them."""
    results: list[list[AclBinding] | RequestError] = []
    changed: Entries = {}
    for one in filters:
        if isinstance(one, RequestError):
            results.append(one)
            continue
        selected = list(select(view, one))
        results.append(selected)
        for acl in selected:
            entries = changed.setdefault(acl.pattern, [*_entries(view, acl.pattern)])
            if acl.entry in entries:
                entries.remove(acl.entry)
    if keeps_alter and _leaves_nobody(changed):
        kept = [
            NOBODY_LEFT_REFUSED
            if not isinstance(selected, RequestError)
            and any(_locks(acl, Permission.ALLOW) for acl in selected)
            else one
            for one, selected in zip(filters, results, strict=True)
        ]
        return delete_acls(view, kept)
    ordered = sorted(changed, key=lambda one: _denies(_entries(view, one)))
    return results, _writes(view, {one: changed[one] for one in ordered}, "ACLs deleted")


def select(view: ClusterView, wanted: AclFilter) -> Iterable[AclBinding]:
    """The ACLs that a filter selects."""
    for pattern, stored in view.image.acls.by_pattern.items():
        if wanted.selects_pattern(pattern):
            for entry in stored.entries:
                if wanted.selects_entry(entry):
                    yield AclBinding(pattern, entry)


def _leaves_nobody(changed: Entries) -> bool:
    return CLUSTER in changed and not may_somebody_alter(changed[CLUSTER])


def _if_it_locks(
    one: AclBinding | RequestError, permission: Permission
) -> AclBinding | RequestError:
    locks = isinstance(one, AclBinding) and _locks(one, permission)
    return NOBODY_LEFT_REFUSED if locks else one


def _locks(acl: AclBinding, permission: Permission) -> bool:
    is_about_it = acl.pattern == CLUSTER and gives_alter(acl.entry)
    return is_about_it and acl.entry.permission is permission


def _checked(acl: AclBinding) -> AclBinding:
    checked = check_acl(acl)
    key_bytes = len(access_keys.acl_key(checked.pattern))
    if key_bytes > KEY_BYTES_MAX:
        raise InvalidRequest(
            f"a resource name of {len(checked.pattern.name.encode())} bytes is too long for an ACL"
        )
    return checked


def _check_room(acl: AclBinding, entries: Sequence[AclEntry], *, count: int, acls_max: int) -> None:
    if count >= acls_max:
        raise PolicyViolation(f"there are {count} ACLs, limit acls_max = {acls_max}")
    # An entry is below 1 KiB unless its principal is long; so most patterns are not encoded here.
    if len(entries) * 100 > VALUE_BYTES_MAX // 20 or len(acl.entry.principal) > 1_000:
        byte_count = len(access_keys.encode_acls([*entries, acl.entry]))
        if byte_count > VALUE_BYTES_MAX:
            raise PolicyViolation(
                f"the ACLs of {acl.pattern} have {byte_count} bytes, limit {VALUE_BYTES_MAX}"
            )


def _entries(view: ClusterView, pattern: ResourcePattern) -> tuple[AclEntry, ...]:
    stored = view.image.acls.by_pattern.get(pattern)
    return () if stored is None else stored.entries


def _denies(entries: Iterable[AclEntry]) -> bool:
    return any(one.permission is Permission.DENY for one in entries)


def _writes(view: ClusterView, changed: Entries, why: str) -> list[GuardedWrite]:
    changes = []
    for pattern, entries in changed.items():
        stored = view.image.acls.by_pattern.get(pattern)
        changes.append(
            KeyChange(
                key=access_keys.acl_key(pattern),
                value=access_keys.encode_acls(entries) if entries else None,
                revision=0 if stored is None else stored.revision,
                why=f"{why}: {pattern}",
            )
        )
    return in_writes(changes, guard=view.guard)
