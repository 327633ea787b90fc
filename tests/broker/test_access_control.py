"""Every API and version, with no right, and with each right held alone: what the table says is what is answered."""

import dataclasses
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from broker.request_samples import DENIALS, GROUP, SAMPLES, TOPIC, TXN_ID, HeldRight, Sample
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.model.errors import InvalidConfig
from respool.model.security.acl import (
    ANY,
    CLUSTER_NAME,
    EVERYONE,
    OPERATIONS,
    AclBinding,
    AclEntry,
    AclOperation,
    AclResource,
    PatternType,
    Permission,
    ResourcePattern,
)
from respool.wire.api_table import Api
from respool.wire.schema import schema_of
from respool.wire.schema_extensions import request_class

ALICE = "User:alice"
NAMES = {
    AclResource.TOPIC: TOPIC,
    AclResource.GROUP: GROUP,
    AclResource.TRANSACTIONAL_ID: TXN_ID,
    AclResource.CLUSTER: CLUSTER_NAME,
    AclResource.USER: "bob",
    AclResource.DELEGATION_TOKEN: "token",
}
RIGHTS: list[HeldRight] = [
    (operation, resource)
    for resource, bits in OPERATIONS.items()
    for operation in AclOperation
    if bits >> operation & 1
]
# They are about logins, which have tests of their own.
OF_LOGINS = {
    Api.SASL_HANDSHAKE,
    Api.SASL_AUTHENTICATE,
    Api.CREATE_DELEGATION_TOKEN,
    Api.RENEW_DELEGATION_TOKEN,
    Api.EXPIRE_DELEGATION_TOKEN,
    Api.DESCRIBE_DELEGATION_TOKEN,
}


@pytest.fixture
def secured(start_broker: StartBroker) -> RunningBroker:
    """A broker that enforces ACLs, with a topic, a group with offsets, and a transactional id."""
    broker = start_broker(super_users="User:root")
    broker.create_topic(TOPIC)
    for key, kind in ((GROUP, 0), (TXN_ID, 1)):
        assert broker.ask(Api.FIND_COORDINATOR, 3, key=key, key_type=kind).error_code == 0
    broker.produce(TOPIC, values=(b"secret",))
    broker.enforce()
    return broker


def allow(
    operation: AclOperation,
    resource: AclResource,
    name: str | None = None,
    *,
    principal: str = ALICE,
    deny: bool = False,
    host: str = ANY,
    prefixed: bool = False,
) -> AclBinding:
    if name is None:
        name = CLUSTER_NAME if resource is AclResource.CLUSTER else ANY
    kind = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    return AclBinding(
        ResourcePattern(resource, name, kind), AclEntry(principal, operation, permission, host)
    )


def codes(reply: Any) -> set[int]:
    """All error codes of a reply, wherever they are."""
    return {int(one) for one in _codes(reply)}


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for one in value:
            yield from _codes(one)
    elif dataclasses.is_dataclass(value):
        for item in dataclasses.fields(value):
            one = getattr(value, item.name)
            if item.name.endswith("error_code") and item.name != "topic_config_error_code":
                yield one
            else:
                yield from _codes(one)


def state(broker: RunningBroker) -> Any:
    """What no denied request changes: the metadata, and every log."""
    logs = {one.name: one.log.log_end for one in broker.broker.partitions}
    return broker.broker.image.revision, logs


def ask(broker: RunningBroker, sample: Sample, version: int) -> Any:
    known = {
        one.name
        for each in versions(sample.api)
        for one in schema_of(request_class(sample.api, each))
    }
    fields = sample.fields(broker, version)
    return broker.ask(sample.api, version, **{one: fields[one] for one in known & fields.keys()})


def test_every_api_has_a_sample() -> None:
    assert {one.api for one in SAMPLES} | OF_LOGINS == set(Api)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_without_any_right_nothing_is_told_and_nothing_changes(
    secured: RunningBroker, sample: Sample
) -> None:
    secured.log_in(ALICE)
    for version in filter(sample.versions, versions(sample.api)):
        before = state(secured)
        found = codes(reply := ask(secured, sample, version)) & DENIALS
        expected = sample.denial(None)
        assert found == ({expected} - {0} if not sample.is_silent else set()), (version, reply)
        if expected:
            assert state(secured) == before
            assert b"secret" not in repr(reply).encode()


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_each_right_held_alone_gets_what_the_table_says(
    secured: RunningBroker, sample: Sample
) -> None:
    ends = [one for one in versions(sample.api) if sample.versions(one)]
    secured.log_in(ALICE)
    for held in RIGHTS:
        secured.set_acls(allow(*held))
        for version in sorted({ends[0], ends[-1]}):
            sample.fields(secured, version)
            before = state(secured)
            found = codes(reply := ask(secured, sample, version)) & DENIALS
            expected = 0 if sample.is_silent else sample.denial(held)
            assert found == {expected} - {0}, (held, version, reply)
            if expected:
                assert state(secured) == before


@pytest.mark.parametrize(
    "sample", [one for one in SAMPLES if one.steps and not one.needs_broker], ids=str
)
def test_patterns_principals_and_hosts_count_in_every_api(
    secured: RunningBroker, sample: Sample
) -> None:
    version = [one for one in versions(sample.api) if sample.versions(one)][-1]
    everything = [allow(AclOperation.ALL, one) for one in OPERATIONS]
    secured.log_in(ALICE)
    kinds = ("everyone", "prefix", "host", "network")
    # First what is refused: what is served may create the topic.
    for step in sample.steps if not sample.is_silent else ():
        for kind in kinds:
            # A DENY wins, whatever else is allowed.
            secured.set_acls(*everything, *(special(kind, one, deny=True) for one in step))
            assert codes(reply := ask(secured, sample, version)) & DENIALS, (kind, step, reply)
    for kind in kinds:
        secured.set_acls(*(special(kind, step[0]) for step in sample.steps))
        assert not codes(reply := ask(secured, sample, version)) & DENIALS, (kind, reply)


def special(kind: str, right: HeldRight, *, deny: bool = False) -> AclBinding:
    """An ACL about the right by something else than the principal's name and the resource's."""
    operation, resource = right
    if kind == "prefix" and resource in (AclResource.GROUP, AclResource.TRANSACTIONAL_ID):
        return allow(operation, resource, NAMES[resource][:2], prefixed=True, deny=deny)
    return allow(
        operation,
        resource,
        principal=EVERYONE if kind == "everyone" else ALICE,
        host={"host": "10.0.0.7", "network": "10.0.0.0/24"}.get(kind, ANY),
        deny=deny,
    )


def test_a_revoked_right_acts_on_the_next_request(secured: RunningBroker) -> None:
    read = next(one for one in SAMPLES if one.api is Api.FETCH)
    secured.set_acls(allow(AclOperation.READ, AclResource.TOPIC, TOPIC))
    secured.log_in(ALICE)
    assert b"secret" in repr(ask(secured, read, 12)).encode()
    secured.set_acls()
    reply = ask(secured, read, 12)
    assert codes(reply) & DENIALS == {29}
    (partition,) = reply.responses[0].partitions
    assert (partition.high_watermark, partition.records) == (-1, None) or not partition.records


def test_a_waiting_fetch_gets_nothing_after_its_right_was_revoked(secured: RunningBroker) -> None:
    secured.set_acls(allow(AclOperation.READ, AclResource.TOPIC, TOPIC))
    read = next(one for one in SAMPLES if one.api is Api.FETCH)
    fields = dict(read.fields(secured, 12))
    fields["topics"][0]["partitions"][0]["fetch_offset"] = 1
    secured.log_in(ALICE)
    waiting = secured.start(
        secured.answer(Api.FETCH, 12, **{**fields, "max_wait": 60_000, "min_bytes": 1})
    )
    secured.log_in("User:root")
    secured.set_acls()
    secured.produce(TOPIC, values=(b"too late",))
    reply = secured.finish(waiting)
    assert codes(reply) & DENIALS == {29}
    assert b"too late" not in repr(reply).encode()


def test_an_incremental_fetch_says_that_a_right_has_gone(secured: RunningBroker) -> None:
    """Trap: nothing else has changed, so the partition would be left out of the reply."""
    secured.set_acls(allow(AclOperation.READ, AclResource.TOPIC, TOPIC))
    fields = dict(next(one for one in SAMPLES if one.api is Api.FETCH).fields(secured, 12))
    fields["topics"][0]["partitions"][0]["fetch_offset"] = 1
    secured.log_in(ALICE)
    first = secured.ask(Api.FETCH, 12, **{**fields, "session_epoch": 0})
    again = {**fields, "session_id": first.session_id, "topics": []}
    assert not secured.ask(Api.FETCH, 12, **{**again, "session_epoch": 1}).responses
    secured.set_acls()
    assert codes(secured.ask(Api.FETCH, 12, **{**again, "session_epoch": 2})) & DENIALS == {29}


def test_a_fetch_session_is_of_its_principal(secured: RunningBroker) -> None:
    secured.set_acls(allow(AclOperation.READ, AclResource.TOPIC, principal=EVERYONE))
    fields = next(one for one in SAMPLES if one.api is Api.FETCH).fields(secured, 12)
    secured.log_in(ALICE)
    first = secured.ask(Api.FETCH, 12, **{**fields, "session_epoch": 0})
    secured.log_in("User:mallory")
    taken = {**fields, "session_id": first.session_id, "session_epoch": 1, "topics": []}
    assert secured.ask(Api.FETCH, 12, **taken).error_code == 70
    # Nor may others end it.
    secured.ask(Api.FETCH, 12, **{**taken, "session_epoch": -1})
    secured.log_in(ALICE)
    assert secured.ask(Api.FETCH, 12, **taken).error_code == 0


def test_absent_and_forbidden_get_the_same_bytes(secured: RunningBroker) -> None:
    """Trap: a handler that looks up first tells who exists."""
    secured.log_in(ALICE)

    def frame(topic: str) -> bytes:
        return secured.frame(
            Api.METADATA,
            9,
            topics=[{"name": topic}],
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=True,
        ).replace(topic.encode(), b"NAME")

    assert frame(TOPIC) == frame("absent")


def test_transactional_batches_need_their_right_whatever_the_request_says(
    secured: RunningBroker,
) -> None:
    """CVE-2018-17196: a crafted request names no transactional id, or one that the client may use."""
    secured.set_acls(
        allow(AclOperation.WRITE, AclResource.TOPIC),
        allow(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, "mine"),
    )
    sample = next(one for one in SAMPLES if str(one) == "PRODUCE-transactional")
    secured.log_in(ALICE)
    before = state(secured)
    fields = sample.fields(secured, 9)
    for name in (None, "", TXN_ID):
        reply = secured.ask(Api.PRODUCE, 9, **{**fields, "transactional_id": name})
        assert codes(reply) == {53}
    assert state(secured) == before


def test_a_claimed_replica_is_no_replica(secured: RunningBroker) -> None:
    """CVE-2018-1288: a replica id is a claim. Without CLUSTER_ACTION nothing is read by it."""
    secured.set_acls(allow(AclOperation.READ, AclResource.TOPIC))
    secured.log_in(ALICE)
    listed = secured.ask(
        Api.WRITE_TXN_MARKERS,
        1,
        markers=[
            {
                "producer_id": 1,
                "producer_epoch": 0,
                "transaction_result": True,
                "topics": [{"name": TOPIC, "partition_indexes": [0]}],
                "coordinator_epoch": 0,
            }
        ],
    )
    assert codes(listed) == {31}


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
@pytest.mark.parametrize("principal", [ALICE, "User:root"])
def test_no_acl_makes_a_broker_of_a_client(
    secured: RunningBroker, mode: str, principal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What brokers ask of each other is for brokers, whatever ACLs and super users say."""
    secured.set_acls(allow(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER))
    secured.enforce(mode)
    secured.log_in(principal)
    asked = [one for one in SAMPLES if one.needs_broker]
    assert {one.api for one in asked} == {
        Api.INITIALIZE_SHARE_GROUP_STATE,
        Api.READ_SHARE_GROUP_STATE,
        Api.WRITE_SHARE_GROUP_STATE,
        Api.DELETE_SHARE_GROUP_STATE,
        Api.READ_SHARE_GROUP_STATE_SUMMARY,
        Api.ADD_PARTITIONS_TO_TXN,
    }
    for sample in asked:
        before = state(secured)
        with caplog.at_level(logging.INFO, "respool.audit"):
            assert codes(ask(secured, sample, versions(sample.api)[-1])) == {31}
        event = json.loads(caplog.records[-1].message)
        assert (event["event"], event["operation"]) == ("denied", "CLUSTER_ACTION")
        assert state(secured) == before


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_markers_need_a_right_that_was_given_in_every_mode(
    secured: RunningBroker, mode: str
) -> None:
    sample = next(one for one in SAMPLES if one.api is Api.WRITE_TXN_MARKERS)
    secured.enforce(mode)
    secured.log_in(ALICE)
    assert codes(ask(secured, sample, 2)) == {31}
    if mode == "off":
        return
    secured.set_acls(allow(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER))
    assert codes(ask(secured, sample, 2)) == {31}
    secured.set_acls(allow(AclOperation.ALTER, AclResource.CLUSTER))
    assert 31 not in codes(ask(secured, sample, 2))


def test_observed_rights_are_logged_and_refuse_nothing(
    secured: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    secured.enforce("observe")
    secured.log_in(ALICE)
    with caplog.at_level(logging.INFO, "respool.audit"):
        reply = ask(secured, next(one for one in SAMPLES if one.api is Api.FETCH), 12)
    assert b"secret" in repr(reply).encode()
    (event,) = [json.loads(one.message) for one in caplog.records if one.name == "respool.audit"]
    assert (event["event"], event["principal"], event["operation"], event["name"]) == (
        "would deny",
        ALICE,
        "READ",
        TOPIC,
    )


def test_off_is_off(secured: RunningBroker) -> None:
    secured.enforce("off")
    secured.log_in(ALICE)
    assert (
        b"secret"
        in repr(ask(secured, next(one for one in SAMPLES if one.api is Api.FETCH), 12)).encode()
    )


def test_what_the_settings_say_is_enforced_from_the_first_request_on(
    start_broker: StartBroker,
) -> None:
    """Nothing has been written to the store yet, so no change of it comes."""
    broker = start_broker(authorization="enforce", super_users="User:root")
    assert broker.broker.access.is_on
    broker.log_in(ALICE)
    reply = broker.ask(Api.DESCRIBE_LOG_DIRS, 4, topics=None)
    assert reply.error_code == 31


def test_nobody_is_locked_out_by_the_switch(start_broker: StartBroker) -> None:
    broker = start_broker()
    with pytest.raises(InvalidConfig, match="nobody could change ACLs"):
        broker.enforce()
    broker.enforce("observe")
    broker.set_acls(allow(AclOperation.ALTER, AclResource.CLUSTER, principal="User:ops"))
    broker.enforce()
    assert broker.broker.access.is_on


def test_operations_told_are_those_allowed(secured: RunningBroker) -> None:
    secured.set_acls(allow(AclOperation.READ, AclResource.TOPIC, TOPIC))
    secured.log_in(ALICE)
    reply = secured.ask(
        Api.METADATA,
        9,
        topics=[{"name": TOPIC}],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    (topic,) = reply.topics
    assert topic.topic_authorized_operations == 1 << AclOperation.READ | 1 << AclOperation.DESCRIBE
    assert reply.cluster_authorized_operations == 0
