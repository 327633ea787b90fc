"""ACLs are written by whole patterns, and come out of the store as they went in."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from respool.cluster.access.acl_requests import create_acls, delete_acls
from respool.cluster.access_keys import acl_key, decode_acls, encode_acls, parse_acl_key
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView, read_view
from respool.model.errors import InvalidRequest, PolicyViolation
from respool.model.security.acl import (
    EVERYONE,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    ResourcePattern,
)
from respool.ports.metadata_store import Guard, StoredValue

PATTERNS = st.builds(
    ResourcePattern,
    st.sampled_from(AclResource),
    st.text(min_size=1, max_size=30).filter(str.isprintable),
    st.sampled_from(PatternType),
)


class Store:
    def __init__(self) -> None:
        self.values: dict[str, StoredValue] = {}
        self.writes: list[GuardedWrite] = []

    def view(self) -> ClusterView:
        return read_view(self.values)

    def apply(self, writes: Iterable[GuardedWrite]) -> None:
        for write in writes:
            self.writes.append(write)
            for key, value in write.puts.items():
                self.values[key] = StoredValue(value=value, revision=len(self.writes))
            for key in write.deletes:
                del self.values[key]

    def create(self, *acls: AclBinding | InvalidRequest) -> list[bool]:
        results, writes = create_acls(self.view(), acls, acls_max=1_000)
        self.apply(writes)
        return [one is None for one in results]

    def delete(self, **fields: object) -> int:
        results, writes = delete_acls(self.view(), [AclFilter(**fields)])  # type: ignore[arg-type]
        self.apply(writes)
        (selected,) = results
        assert isinstance(selected, list)
        return len(selected)


def acl(name: str, principal: str = "User:alice", *, deny: bool = False) -> AclBinding:
    permission = Permission.DENY if deny else Permission.ALLOW
    return AclBinding(
        ResourcePattern(AclResource.TOPIC, name), AclEntry(principal, AclOperation.READ, permission)
    )


@given(PATTERNS)
def test_a_pattern_of_any_name_has_a_key_of_its_own(pattern: ResourcePattern) -> None:
    assert parse_acl_key(acl_key(pattern)) == pattern


def test_entries_come_back_as_they_were() -> None:
    entries = (acl("a").entry, acl("a", deny=True).entry)
    assert decode_acls(encode_acls(entries), revision=7).entries == entries


def test_all_acls_of_a_pattern_are_one_key_guarded_by_its_revision() -> None:
    """CVE-2024-27309's class: half of a resource's ACLs must never be in force."""
    store = Store()
    assert store.create(acl("a"), acl("a", "User:bob"), acl("a", deny=True)) == [True] * 3
    assert len(store.values) == 1
    assert len(store.writes) == 1
    store.create(acl("a", "User:carol"))
    (key,) = store.values
    assert Guard(key=key, revision=1) in store.writes[-1].guards


def test_what_is_no_acl_leaves_the_others_alone() -> None:
    store = Store()
    assert store.create(InvalidRequest("no"), acl("a")) == [False, True]
    assert store.view().image.acls.count == 1


def test_denials_come_first_and_go_last() -> None:
    """In between, nobody may do what they may do neither before nor afterwards."""
    store = Store()
    allowing = [acl(f"t{number}") for number in range(80)]
    store.create(*allowing, acl("zz", deny=True))
    assert len(store.writes) > 1
    denial = acl_key(acl("zz").pattern)
    assert denial in store.writes[0].puts
    store.writes.clear()
    assert store.delete() == 81
    assert denial in store.writes[-1].deletes
    assert not store.values


def test_what_a_newer_version_stored_denies_everything() -> None:
    store = Store()
    store.create(acl("a"))
    (key,) = store.values
    odd = store.values[key].value.replace(b'"READ"', b'"DREAM"')
    store.values[key] = StoredValue(value=odd, revision=9)
    (stored,) = store.view().image.acls.by_pattern.values()
    assert stored.entries == (AclEntry(EVERYONE, AclOperation.ALL, Permission.DENY),)


# -- who may change ACLs -----------------------------------------------------------------------------------------------


def of_cluster(
    principal: str,
    operation: AclOperation = AclOperation.ALTER,
    permission: Permission = Permission.ALLOW,
    host: str = "*",
) -> AclBinding:
    pattern = ResourcePattern(AclResource.CLUSTER, "kafka-cluster")
    return AclBinding(pattern, AclEntry(principal, operation, permission, host))


def test_the_last_who_may_change_acls_keeps_the_right_while_they_are_enforced() -> None:
    store = Store()
    store.create(of_cluster("User:ops"), of_cluster("User:second", AclOperation.ALL), acl("rides"))
    filters = [AclFilter(principal="User:ops"), AclFilter(name="rides")]
    results, writes = delete_acls(store.view(), filters, keeps_alter=True)
    assert [isinstance(one, list) for one in results] == [True, True]
    store.apply(writes)

    store.create(acl("rides"))
    filters = [AclFilter(principal="User:second"), AclFilter(name="rides")]
    results, writes = delete_acls(store.view(), filters, keeps_alter=True)
    refusal, deleted = results
    assert isinstance(refusal, PolicyViolation)
    assert isinstance(deleted, list)
    assert [one for write in writes for one in write.deletes] == [
        acl_key(ResourcePattern(AclResource.TOPIC, "rides"))
    ]
    # With super users, or while nothing is enforced, it goes.
    assert store.delete(principal="User:second") == 1


def test_a_deny_that_locks_everybody_out_is_refused_while_acls_are_enforced() -> None:
    store = Store()
    store.create(of_cluster("User:ops"))
    denies = [
        of_cluster(EVERYONE, permission=Permission.DENY),
        of_cluster("User:ops", AclOperation.ALL, Permission.DENY),
    ]
    for deny in denies:
        results, writes = create_acls(
            store.view(), [deny, acl("rides")], acls_max=9, keeps_alter=True
        )
        assert isinstance(results[0], PolicyViolation)
        assert results[1] is None
        assert len(writes) == 1
    harmless = [
        of_cluster("User:mallory", permission=Permission.DENY),
        of_cluster("User:ops", permission=Permission.DENY, host="10.0.0.7"),
        of_cluster("User:ops", AclOperation.DESCRIBE, Permission.DENY),
    ]
    results, _ = create_acls(store.view(), harmless, acls_max=9, keeps_alter=True)
    assert results == [None, None, None]
