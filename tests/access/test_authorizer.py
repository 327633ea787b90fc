"""The index decides as Kafka's rules, read one by one, do."""

import ipaddress

from hypothesis import given, settings
from hypothesis import strategies as st

from respool.access.authorizer import Authorizer
from respool.model.security.acl import (
    ANY,
    EVERYONE,
    AclBinding,
    AclEntry,
    AclImage,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    ResourcePattern,
    StoredAcls,
)

TOPIC = AclResource.TOPIC
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE

NAMES = st.sampled_from(["a", "ab", "abc", "b", "ba", ANY])
PATTERNS = st.builds(
    ResourcePattern,
    st.sampled_from([AclResource.TOPIC, AclResource.GROUP]),
    NAMES,
    st.sampled_from(PatternType),
).filter(lambda one: not (one.name == ANY and one.pattern is PatternType.PREFIXED))
HOSTS = st.sampled_from(
    [ANY, "10.0.0.1", "10.0.0.0/8", "10.0.0.0/31", "2001:db8::/32", "2001:db8::1"]
)
ENTRIES = st.builds(
    AclEntry,
    principal=st.sampled_from(["User:alice", "User:bob", EVERYONE]),
    operation=st.sampled_from(
        [
            AclOperation.ALL,
            READ,
            WRITE,
            DESCRIBE,
            AclOperation.ALTER_CONFIGS,
            AclOperation.DESCRIBE_CONFIGS,
        ]
    ),
    permission=st.sampled_from(Permission),
    host=HOSTS,
)
ACLS = st.dictionaries(PATTERNS, st.lists(ENTRIES, min_size=1, max_size=4), max_size=8)
CLIENTS = st.sampled_from(["10.0.0.1", "10.9.9.9", "192.168.0.1", "2001:db8::1", "2001:db9::1"])
PRINCIPALS = st.sampled_from(["User:alice", "User:bob", "User:eve", "User:root"])
ASKED = st.sampled_from([READ, WRITE, DESCRIBE, AclOperation.DESCRIBE_CONFIGS])

Acls = dict[ResourcePattern, list[AclEntry]]

IMPLIED: dict[AclOperation, set[AclOperation]] = {
    READ: {DESCRIBE},
    WRITE: {DESCRIBE},
    AclOperation.DELETE: {DESCRIBE},
    AclOperation.ALTER: {DESCRIBE},
    AclOperation.ALTER_CONFIGS: {AclOperation.DESCRIBE_CONFIGS},
}


def image_of(acls: Acls) -> AclImage:
    return AclImage(by_pattern={key: StoredAcls(tuple(one)) for key, one in acls.items()})


def one_by_one(
    acls: Acls,
    *,
    principal: str,
    host: str,
    operation: AclOperation,
    resource: AclResource,
    name: str,
    is_open: bool = False,
) -> bool:
    """Kafka's rules, read aloud."""
    if principal == "User:root":
        return True
    matching = [
        entry for key, entries in acls.items() if key.matches(resource, name) for entry in entries
    ]
    if not matching:
        return is_open
    address = ipaddress.ip_address(host)
    here = [
        one
        for one in matching
        if one.principal in (principal, EVERYONE)
        and (
            one.host == ANY
            or ("/" in one.host and address in ipaddress.ip_network(one.host))
            or one.host == host
        )
    ]
    for one in here:
        if one.permission is Permission.DENY and one.operation in (operation, AclOperation.ALL):
            return False
    return any(
        one.permission is Permission.ALLOW
        and (
            one.operation in (operation, AclOperation.ALL)
            or operation in IMPLIED.get(one.operation, set())
        )
        for one in here
    )


@settings(max_examples=400)
@given(
    acls=ACLS,
    principal=PRINCIPALS,
    host=CLIENTS,
    operation=ASKED,
    name=st.sampled_from(["a", "ab", "abcd", "b", "c"]),
    is_open=st.booleans(),
)
def test_index_decides_as_the_rules_one_by_one(
    *, acls: Acls, principal: str, host: str, operation: AclOperation, name: str, is_open: bool
) -> None:
    authorizer = Authorizer(image_of(acls), super_users={"User:root"}, allows_without_acl=is_open)
    expected = one_by_one(
        acls, principal=principal, host=host, operation=operation, resource=TOPIC, name=name,
        is_open=is_open,
    )  # fmt: skip
    caller = authorizer.caller(principal, host)
    assert authorizer.allows(caller, operation, TOPIC, name) is expected
    decision = authorizer.explain(principal, host, operation, TOPIC, name)
    assert decision.is_allowed is expected
    if decision.acl is not None:
        assert decision.acl.entry in acls[decision.acl.pattern]
        assert decision.acl.pattern.matches(TOPIC, name)
        assert (decision.acl.entry.permission is Permission.ALLOW) is expected


@settings(max_examples=200)
@given(ACLS, ACLS, PRINCIPALS, CLIENTS, ASKED)
def test_changed_index_decides_as_a_new_one(
    acls: Acls, changes: Acls, principal: str, host: str, operation: AclOperation
) -> None:
    before = Authorizer(image_of(acls))
    after_acls = {**acls, **changes}
    for gone in list(acls)[::2]:
        after_acls.pop(gone, None)
    image = image_of(after_acls)
    changed = [one for one in {**acls, **changes} if acls.get(one) != after_acls.get(one)]
    updated, rebuilt = before.with_changes(image, changed), Authorizer(image)
    for resource in (TOPIC, AclResource.GROUP):
        for name in ("a", "ab", "abcd", "b", "c"):
            one, other = updated.caller(principal, host), rebuilt.caller(principal, host)
            assert updated.allows(one, operation, resource, name) is rebuilt.allows(
                other, operation, resource, name
            )
    unchanged = Authorizer(image_of(acls))
    for name in ("a", "ab", "b"):
        assert before.allows(before.caller(principal, host), operation, TOPIC, name) is (
            unchanged.allows(unchanged.caller(principal, host), operation, TOPIC, name)
        )


@settings(max_examples=200)
@given(ACLS, PRINCIPALS, CLIENTS)
def test_any_topic_is_allowed_only_if_some_name_is(acls: Acls, principal: str, host: str) -> None:
    """ "Any" is judged on names that exist nowhere, too: below each prefix there is a name that no literal ACL has."""
    authorizer = Authorizer(image_of(acls), super_users={"User:root"})
    names = {one.name + tail for one in acls if one.name != ANY for tail in ("", "-unheard-of")} | {
        "unheard-of"
    }
    expected = any(
        one_by_one(acls, principal=principal, host=host, operation=WRITE, resource=TOPIC, name=name)
        for name in names
    )
    caller = authorizer.caller(principal, host)
    assert authorizer.allows_any(caller, WRITE, TOPIC) is expected


def allowed(
    *bindings: AclBinding,
    principal: str = "User:alice",
    host: str = "10.0.0.1",
    operation: AclOperation = READ,
    name: str = "orders",
) -> bool:
    acls: dict[ResourcePattern, list[AclEntry]] = {}
    for one in bindings:
        acls.setdefault(one.pattern, []).append(one.entry)
    authorizer = Authorizer(image_of(acls))
    return authorizer.allows(authorizer.caller(principal, host), operation, TOPIC, name)


def acl(
    operation: AclOperation = READ,
    name: str = "orders",
    *,
    host: str = ANY,
    deny: bool = False,
    principal: str = "User:alice",
    prefixed: bool = False,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(TOPIC, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL),
        AclEntry(principal, operation, Permission.DENY if deny else Permission.ALLOW, host),
    )


def test_deny_wins_over_a_more_specific_allow() -> None:
    assert not allowed(acl(name="orders"), acl(name="ord", prefixed=True, deny=True))


def test_deny_implies_nothing() -> None:
    assert allowed(acl(WRITE), acl(READ, deny=True), operation=DESCRIBE)


def test_networks_match_mapped_addresses() -> None:
    """An IPv4 client seen through an IPv6 socket is the same client."""
    assert allowed(acl(host="10.0.0.0/8"), host="::ffff:10.0.0.1")
    assert not allowed(acl(), acl(host="10.0.0.0/8", deny=True), host="::ffff:10.0.0.1")


def test_only_the_type_user_has_a_wildcard() -> None:
    assert not allowed(acl(principal="Group:*"))
    assert allowed(acl(principal="User:*"))
    assert not allowed(acl(principal="User:al*"))
