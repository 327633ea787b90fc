"""Delegation tokens: made, seen, renewed and expired by requests, and logins with them."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.broker.logins.delegation_tokens import (
    RENEWERS_MAX,
    TOKENS_PER_OWNER_MAX,
    store_token,
)
from respool.client.kafka.sasl import ScramLogin
from respool.model.errors import PolicyViolation
from respool.model.security.acl import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    ResourcePattern,
)
from respool.model.security.delegation_token import DelegationToken
from respool.model.security.principal import Principal
from respool.wire.api_table import Api
from support.raw_client import RawClient
from support.secured_broker import PASSWORD, SecuredBroker, secured

DAY_MS = 86_400_000
CREATE, RENEW = Api.CREATE_DELEGATION_TOKEN, Api.RENEW_DELEGATION_TOKEN
EXPIRE, DESCRIBE = Api.EXPIRE_DELEGATION_TOKEN, Api.DESCRIBE_DELEGATION_TOKEN
INVALID_REQUEST, POLICY_VIOLATION = 42, 44
NOT_FOUND, OWNER_MISMATCH, NOT_ALLOWED = 62, 63, 64
NOT_AUTHORIZED, EXPIRED, INVALID_PRINCIPAL_TYPE = 65, 66, 67


@pytest.fixture
def tokens(start_broker: StartBroker) -> RunningBroker:
    """A broker with delegation tokens; alice is logged in."""
    broker = start_broker(
        delegation_token_secret_key_file="a key of the tests", super_users="User:root"
    )
    broker.log_in("User:alice")
    return broker


def create(broker: RunningBroker, version: int = 3, **changed: Any) -> Any:
    fields: dict[str, Any] = {
        "owner_principal_type": None,
        "owner_principal_name": None,
        "renewers": [{"principal_type": "User", "principal_name": "bob"}],
        "max_lifetime": -1,
        **changed,
    }
    if version < 3:
        fields = {name: fields[name] for name in ("renewers", "max_lifetime")}
    return broker.ask(CREATE, version, **fields)


def renew(broker: RunningBroker, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
    return broker.ask(RENEW, version, hmac=hmac, renew_period=period_ms)


def expire(broker: RunningBroker, hmac: bytes, period_ms: int = -1, version: int = 2) -> Any:
    return broker.ask(EXPIRE, version, hmac=hmac, expiry_time_period=period_ms)


def seen(broker: RunningBroker, *owners: str, principal: str | None = None) -> list[str]:
    """The ids of the tokens that the principal is shown."""
    if principal is not None:
        broker.log_in(principal)
    named = [{"principal_type": "User", "principal_name": one} for one in owners] or None
    reply = broker.ask(DESCRIBE, 3, owners=named)
    assert reply.error_code == 0
    return [one.token_id for one in reply.tokens]


def milliseconds(moment: Any) -> int:
    return int(moment.timestamp() * 1000 + 0.5)


@pytest.mark.parametrize("version", versions(CREATE))
def test_a_token_is_of_who_asks_for_it(tokens: RunningBroker, version: int) -> None:
    made = create(tokens, version)

    now_ms = tokens.clock.now_ms()
    assert made.error_code == 0
    assert (made.principal_type, made.principal_name) == ("User", "alice")
    assert milliseconds(made.issue_timestamp) == now_ms
    assert milliseconds(made.expiry_timestamp) == now_ms + DAY_MS
    assert milliseconds(made.max_timestamp) == now_ms + 7 * DAY_MS
    assert len(made.hmac) == 64
    reply = tokens.ask(DESCRIBE, version, owners=None)
    [told] = reply.tokens
    assert (told.token_id, told.hmac, told.principal_name) == (made.token_id, made.hmac, "alice")
    assert [one.principal_name for one in told.renewers] == ["bob"]
    # The store has nothing to log in with.
    stored = tokens.run(tokens.store.snapshot("/tokens/")).values[f"/tokens/{made.token_id}"].value
    assert base64.b64encode(made.hmac) not in stored
    assert made.hmac.hex().encode() not in stored


def test_lifetimes_are_cut_to_the_settings(tokens: RunningBroker) -> None:
    now_ms = tokens.clock.now_ms()
    long = create(tokens, max_lifetime=30 * DAY_MS)
    assert milliseconds(long.max_timestamp) == now_ms + 7 * DAY_MS
    short = create(tokens, max_lifetime=1_000)
    assert milliseconds(short.max_timestamp) == now_ms + 1_000
    assert milliseconds(short.expiry_timestamp) == now_ms + 1_000


@pytest.mark.parametrize("version", versions(RENEW))
def test_a_renewer_renews_up_to_the_maximum(tokens: RunningBroker, version: int) -> None:
    made = create(tokens, max_lifetime=3 * DAY_MS // 2)
    tokens.log_in("User:bob")
    tokens.clock.advance(DAY_MS // 4)
    now_ms = tokens.clock.now_ms()
    for period_ms, expected in ((-1, DAY_MS), (5_000, 5_000), (9 * DAY_MS, DAY_MS)):
        reply = renew(tokens, made.hmac, period_ms, version)
        assert (reply.error_code, milliseconds(reply.expiry_timestamp)) == (0, now_ms + expected)
    tokens.clock.advance(DAY_MS * 3 // 4)
    reply = renew(tokens, made.hmac)
    assert reply.expiry_timestamp == made.max_timestamp


@pytest.mark.parametrize("version", versions(EXPIRE))
def test_a_token_is_expired_later_or_at_once(tokens: RunningBroker, version: int) -> None:
    made = create(tokens)
    now_ms = tokens.clock.now_ms()
    reply = expire(tokens, made.hmac, 60_000, version)
    assert (reply.error_code, milliseconds(reply.expiry_timestamp)) == (0, now_ms + 60_000)
    assert seen(tokens) == [made.token_id]
    assert expire(tokens, made.hmac, -1, version).error_code == 0
    assert not seen(tokens)
    assert expire(tokens, made.hmac, -1, version).error_code == NOT_FOUND


def test_an_expired_token_is_not_renewed_and_goes_with_the_next_one(tokens: RunningBroker) -> None:
    made = create(tokens)
    tokens.clock.advance(DAY_MS)
    assert renew(tokens, made.hmac).error_code == EXPIRED
    assert expire(tokens, made.hmac).error_code == EXPIRED
    assert not seen(tokens)
    assert made.token_id in tokens.broker.image.tokens
    after = create(tokens)
    assert list(tokens.broker.image.tokens) == [after.token_id]


def test_others_can_neither_see_nor_change_a_token(tokens: RunningBroker) -> None:
    made = create(tokens)
    before = tokens.broker.image.tokens
    assert not seen(tokens, principal="User:eve")
    assert renew(tokens, made.hmac).error_code == OWNER_MISMATCH
    assert expire(tokens, made.hmac).error_code == OWNER_MISMATCH
    assert expire(tokens, made.hmac, 0).error_code == OWNER_MISMATCH
    assert renew(tokens, b"guess").error_code == NOT_FOUND
    assert tokens.broker.image.tokens == before
    assert seen(tokens, principal="User:bob") == [made.token_id]
    assert seen(tokens, "alice") == [made.token_id]
    assert not seen(tokens, "eve")


def test_without_a_login_or_with_a_token_nothing_is_done(tokens: RunningBroker) -> None:
    """A token may not make tokens: it would live for ever."""
    made = create(tokens)
    tokens.session.token_id = made.token_id
    for reply in (
        create(tokens),
        renew(tokens, made.hmac),
        expire(tokens, made.hmac),
        tokens.ask(DESCRIBE, 3, owners=None),
    ):
        assert reply.error_code == NOT_ALLOWED
    assert list(tokens.broker.image.tokens) == [made.token_id]


def test_what_cannot_be_stored_is_refused(tokens: RunningBroker) -> None:
    group = {"principal_type": "Group", "principal_name": "staff"}
    nobody = {"principal_type": "User", "principal_name": ""}
    bob = {"principal_type": "User", "principal_name": "bob"}
    assert create(tokens, renewers=[group]).error_code == INVALID_PRINCIPAL_TYPE
    assert create(tokens, renewers=[nobody]).error_code == INVALID_REQUEST
    many = [bob] * (RENEWERS_MAX + 1)
    assert create(tokens, renewers=many).error_code == POLICY_VIOLATION
    assert not tokens.broker.image.tokens


def on_user(operation: AclOperation) -> AclBinding:
    return AclBinding(
        ResourcePattern(AclResource.USER, "User:dan", PatternType.LITERAL),
        AclEntry("User:alice", operation, Permission.ALLOW, "*"),
    )


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
def test_a_token_of_somebody_else_needs_the_right_in_every_mode(
    tokens: RunningBroker, mode: str
) -> None:
    tokens.enforce(mode)
    asked: dict[str, Any] = {
        "owner_principal_type": "User",
        "owner_principal_name": "dan",
        "renewers": [],
    }
    assert create(tokens, **asked).error_code == NOT_AUTHORIZED
    if mode == "off":
        return
    tokens.set_acls(on_user(AclOperation.CREATE_TOKENS))
    made = create(tokens, **asked)
    assert (made.error_code, made.principal_name) == (0, "dan")
    assert made.token_requester_principal_name == "alice"
    assert seen(tokens, principal="User:dan") == [made.token_id]
    other = create(tokens, renewers=[])
    assert seen(tokens, principal="User:alice") == [made.token_id]
    tokens.set_acls(on_user(AclOperation.DESCRIBE_TOKENS))
    assert {*seen(tokens)} == {made.token_id, other.token_id}


def test_an_owner_has_a_limit_which_expired_tokens_do_not_fill(tokens: RunningBroker) -> None:
    view, alice = tokens.broker.catalog.view(), Principal("alice")
    token = DelegationToken(
        id="new",
        owner=alice,
        requester=alice,
        renewers=(),
        issued_ms=0,
        expires_ms=10,
        max_ms=10,
    )
    many = {str(n): replace(token, id=str(n)) for n in range(TOKENS_PER_OWNER_MAX)}
    full = replace(view, image=replace(view.image, tokens=many))
    with pytest.raises(PolicyViolation, match="alice"):
        store_token(full, token, now_ms=9)
    [write] = store_token(full, token, now_ms=10)
    assert write.deletes
    assert len(write.puts) == 1


# -- logins --


@pytest.fixture
def broker(tmp_path: Path) -> Any:
    key = tmp_path / "tokens.key"
    key.write_bytes(b"sixteen bytes or more")
    key.chmod(0o600)
    with secured(tmp_path, settings={"delegation_token_secret_key_file": str(key)}) as made:
        yield made


def log_in(client: RawClient, user: str, password: str, *, token: bool = False) -> Any:
    mechanism = "SCRAM-SHA-256"
    assert client.ask(Api.SASL_HANDSHAKE, 1, mechanism=mechanism).error_code == 0
    login = ScramLogin(mechanism, user, password)
    if token:
        login._first += ",tokenauth=true"
    first = client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=login.begin())
    assert first.error_code == 0
    final = login.answer(bytes(first.auth_bytes))
    return client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=final)


def test_a_token_logs_in_as_its_owner_until_it_is_expired(broker: SecuredBroker) -> None:
    with RawClient(broker.address("clear")) as alice, RawClient(broker.address("clear")) as worker:
        assert log_in(alice, "alice", PASSWORD).error_code == 0
        made = alice.ask(CREATE, 1, renewers=[], max_lifetime=-1)
        assert made.error_code == 0
        password = base64.b64encode(made.hmac).decode()
        reply = log_in(worker, made.token_id, password, token=True)
        assert reply.error_code == 0
        # Clients log in again before that.
        assert 0 < reply.session_lifetime.total_seconds() <= DAY_MS / 1000
        assert worker.ask(CREATE, 1, renewers=[], max_lifetime=-1).error_code == NOT_ALLOWED
        assert alice.ask(EXPIRE, 1, hmac=made.hmac, expiry_time_period=-1).error_code == 0
        worker.wait_for_end()
    with RawClient(broker.address("clear")) as late:
        assert log_in(late, made.token_id, password, token=True).error_code == 58


def test_tokens_go_with_their_owner(broker: SecuredBroker) -> None:
    with RawClient(broker.address("clear")) as alice, RawClient(broker.address("clear")) as worker:
        assert log_in(alice, "alice", PASSWORD).error_code == 0
        made = alice.ask(CREATE, 1, renewers=[], max_lifetime=-1)
        password = base64.b64encode(made.hmac).decode()
        assert log_in(worker, made.token_id, password, token=True).error_code == 0
        broker.remove_user("alice")
        worker.wait_for_end()
    # One with the same name who comes later has none of them.
    broker.add_user("alice")
    assert not broker.serving.image.tokens


def test_the_listener_in_the_clear_makes_no_tokens(broker: SecuredBroker) -> None:
    with RawClient(broker.address("client")) as stranger:
        reply = stranger.ask(CREATE, 1, renewers=[], max_lifetime=-1)
        assert (reply.error_code, reply.hmac) == (NOT_ALLOWED, b"")
