"""Quotas on a broker: who is throttled, for how long, what is refused. Time stands still unless a test lets it pass."""

import asyncio
from typing import Any

import pytest

from broker.group_client import start_with_groups
from broker.handlers.share_groups.share_client import ShareMember
from broker.request_samples import SAMPLES, TOPIC
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import decode_reply, encode_request
from respool.broker.quotas import SessionQuotas
from respool.records.build import NewRecord, build_batch
from respool.server.listener import Listener
from respool.wire.api_table import Api

THROTTLING_QUOTA_EXCEEDED = 89
RATE = 1_000.0
BURST = 11 * RATE


@pytest.fixture
def broker(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic(TOPIC)
    running_broker.log_in("User:alice")
    return running_broker


def set_quota(broker: RunningBroker, *, value: float = RATE, **limits: Any) -> None:
    """Of user alice, unless `entity` says otherwise."""
    entity = limits.pop("entity", {"user": "alice"})
    (name,) = limits.pop("names")
    reply = broker.ask(
        Api.ALTER_CLIENT_QUOTAS,
        1,
        entries=[
            {
                "entity": [{"entity_type": k, "entity_name": v} for k, v in entity.items()],
                "ops": [{"key": name, "value": value, "remove": False}],
            }
        ],
        validate_only=False,
    )
    assert reply.entries[0].error_code == 0, reply


def produce(broker: RunningBroker, size: int) -> int:
    """Produce about this many bytes and return the throttle time in milliseconds."""
    records = [NewRecord(value=b"x" * size, timestamp_ms=broker.clock.now_ms())]
    reply = broker.ask(
        Api.PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=100,
        topic_data=[
            {"name": TOPIC, "partition_data": [{"index": 0, "records": build_batch(records)}]}
        ],
    )
    assert reply.responses[0].partition_responses[0].error_code == 0
    return _ms(reply)


def _ms(reply: Any) -> int:
    return int(reply.throttle_time.total_seconds() * 1000)


def fetch(broker: RunningBroker, offset: int = 0, **fields: Any) -> Any:
    sample = next(one for one in SAMPLES if one.api is Api.FETCH)
    wanted = dict(sample.fields(broker, 12))
    part = wanted["topics"][0]["partitions"][0]
    part |= {"fetch_offset": offset, "partition_max_bytes": 10_000_000}
    return broker.ask(Api.FETCH, 12, **{**wanted, "max_bytes": 10_000_000, **fields})


def test_a_producer_over_its_quota_is_served_and_told_to_wait(broker: RunningBroker) -> None:
    set_quota(broker, names=["producer_byte_rate"])
    assert produce(broker, int(BURST) - 1_000) == 0
    # It is taken all the same.
    throttle_ms = produce(broker, 5_000)
    assert 3_000 < throttle_ms < 6_000
    assert broker.offset(TOPIC, at=-1) == 2
    broker.clock.advance(10_000)
    assert produce(broker, 10) == 0


def test_who_has_no_quota_is_not_counted(broker: RunningBroker) -> None:
    set_quota(broker, names=["producer_byte_rate"])
    broker.log_in("User:bob")
    for _ in range(5):
        assert produce(broker, 100_000) == 0


def test_a_default_gives_each_user_a_bucket(broker: RunningBroker) -> None:
    set_quota(broker, names=["producer_byte_rate"], entity={"user": None})
    assert produce(broker, 100_000) > 0
    broker.log_in("User:bob")
    assert produce(broker, 5_000) == 0
    broker.log_in("User:alice")
    assert produce(broker, 10) > 0


def test_a_fetch_over_its_quota_gets_an_empty_reply_that_is_not_counted(
    broker: RunningBroker,
) -> None:
    for _ in range(6):
        produce(broker, 10_000)
    set_quota(broker, names=["consumer_byte_rate"])
    # The first fetch gets what the window allows, and at least one batch.
    first = fetch(broker)
    records = first.responses[0].partitions[0].records
    assert 10_000 < len(records) < 2 * BURST
    fetch(broker)
    throttled = fetch(broker)
    assert _ms(throttled) > 0
    assert not throttled.responses
    assert (throttled.error_code, throttled.session_id) == (0, 0)
    for _ in range(5):
        # More empty replies do not make it longer.
        assert _ms(fetch(broker)) <= _ms(throttled)
    broker.clock.advance(60_000)
    assert fetch(broker).responses[0].partitions[0].records


def test_a_batch_larger_than_the_window_gets_through(broker: RunningBroker) -> None:
    """Trap: a fetch that never fits would stop its consumer for good."""
    produce(broker, 200_000)
    set_quota(broker, names=["consumer_byte_rate"])
    assert len(fetch(broker).responses[0].partitions[0].records) > 200_000
    assert not fetch(broker).responses


def test_a_throttled_incremental_fetch_keeps_its_session(broker: RunningBroker) -> None:
    produce(broker, 100_000)
    first = fetch(broker, session_epoch=0)
    set_quota(broker, names=["consumer_byte_rate"])
    fetch(broker)
    throttled = fetch(broker, session_id=first.session_id, session_epoch=1, topics=[])
    assert (throttled.session_id, throttled.responses) == (first.session_id, ())
    assert _ms(throttled) > 0
    broker.clock.advance(600_000)
    again = fetch(broker, session_id=first.session_id, session_epoch=2, topics=[])
    assert again.error_code == 0
    assert again.responses


def create(broker: RunningBroker, name: str, partitions: int, version: int) -> tuple[int, int]:
    reply = broker.ask(
        Api.CREATE_TOPICS,
        version,
        topics=[
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
        ],
        timeout=100,
        validate_only=False,
    )
    return reply.topics[0].error_code, _ms(reply)


def test_records_of_share_groups_count_and_acknowledgements_pass(
    start_broker: StartBroker,
) -> None:
    broker = start_with_groups(start_broker)
    broker.create_topic(TOPIC)
    broker.log_in("User:alice")
    broker.set_for_group("billing", {"share.auto.offset.reset": "earliest"})
    member = ShareMember(broker, topic=TOPIC)
    member.join()
    for _ in range(3):
        produce(broker, 100_000)
    set_quota(broker, names=["consumer_byte_rate"])
    # One batch, although it is larger than the window.
    assert member.take(max_bytes=1_000_000) == [(0, 0, 1)]
    throttled = member.fetch((0, 0, 1))
    assert _ms(throttled) > 0
    (answer,) = throttled.responses[0].partitions
    assert (answer.acknowledge_error_code, list(answer.acquired_records)) == (0, [])
    broker.clock.advance(600_000)
    assert member.take() == [(1, 1, 1)]


def test_changes_over_the_quota_are_refused_or_muted_by_version(broker: RunningBroker) -> None:
    set_quota(broker, names=["controller_mutation_rate"], value=1.0)
    code, throttle_ms = create(broker, "many", 13, 7)
    # What was begun is done.
    assert (code, throttle_ms) == (0, 2_000)
    assert create(broker, "one", 1, 7) == (THROTTLING_QUOTA_EXCEEDED, 2_000)
    assert "one" not in broker.broker.image.topics
    # Clients of older versions do not know that.
    assert create(broker, "old", 1, 5) == (0, 3_000)
    reply = broker.ask(Api.DELETE_TOPICS, 5, topic_names=["old"], timeout=100)
    assert reply.responses[0].error_code == THROTTLING_QUOTA_EXCEEDED
    broker.clock.advance(3_000)
    assert create(broker, "later", 1, 7)[0] == 0


def test_time_on_the_loop_is_limited(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_quota(broker, names=["request_percentage"], value=10.0)
    ticks = iter(range(10**6))
    # Each look at the stopwatch takes a second.
    monkeypatch.setattr(broker.clock, "stopwatch_s", lambda: float(next(ticks)))
    for _ in range(3):
        broker.ask(Api.LIST_GROUPS, 3, states_filter=[])
    assert _ms(broker.ask(Api.METADATA, 4, topics=[], allow_auto_topic_creation=False)) > 1_000


def test_connections_of_an_address_are_limited_by_their_rate(broker: RunningBroker) -> None:
    set_quota(broker, names=["connection_creation_rate"], value=1.0, entity={"ip": "10.0.0.9"})
    quotas = broker.broker.quotas
    assert sum(quotas.may_connect("10.0.0.9") for _ in range(30)) == 11
    assert all(quotas.may_connect("10.0.0.8") for _ in range(30))
    broker.clock.advance(1_000)
    assert [quotas.may_connect("10.0.0.9") for _ in range(2)] == [True, False]


def test_a_removed_quota_limits_nobody_any_more(broker: RunningBroker) -> None:
    set_quota(broker, names=["producer_byte_rate"])
    produce(broker, 100_000)
    assert produce(broker, 10) > 0
    broker.ask(
        Api.ALTER_CLIENT_QUOTAS,
        1,
        entries=[
            {
                "entity": [{"entity_type": "user", "entity_name": "alice"}],
                "ops": [{"key": "producer_byte_rate", "value": 0.0, "remove": True}],
            }
        ],
        validate_only=False,
    )
    assert produce(broker, 10) == 0
    assert not broker.broker.quotas.is_on


def test_a_throttled_connection_is_answered_and_then_not_read(
    running_broker: RunningBroker,
) -> None:
    """Clients need not wait by themselves: librdkafka does not."""
    running_broker.create_topic(TOPIC)
    set_quota(
        running_broker, names=["request_percentage"], value=10.0, entity={"client-id": "tester"}
    )

    async def story() -> None:
        listener = Listener(running_broker.broker)
        reader, writer = await asyncio.open_connection(*await listener.start())
        frame = bytes(encode_request(Api.LIST_GROUPS, 3, states_filter=[]))

        async def ask() -> Any:
            writer.write(len(frame).to_bytes(4, "big") + frame)
            size = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(size, "big"))
            return decode_reply(Api.LIST_GROUPS, 3, size + body)

        await ask()
        (connection,) = listener.connections
        quotas = connection.session.buckets
        assert isinstance(quotas, SessionQuotas)
        assert quotas.time is not None
        quotas.time.take(1_105, now_ms=0)
        assert _ms(await ask()) == 50
        assert connection.is_busy
        # The next request waits in the socket, and is answered when the mute ends.
        waiting = asyncio.ensure_future(ask())
        await asyncio.sleep(0)
        assert connection._flow.is_muted
        running_broker.clock.advance(1_000)
        assert _ms(await waiting) == 0
        assert not connection._flow.is_muted
        writer.close()
        await listener.stop()

    running_broker.run(story())
