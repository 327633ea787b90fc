"""What acks=1 promises: that the batch is durable on its leader, as the topic's `respool.flush` has it."""

import asyncio
from typing import Any

import pytest

from broker.running_broker import LATEST, RunningBroker
from broker.wire_client import decode_reply, encode_request
from respool.broker.dispatch import handle
from respool.broker.outcome import Outcome, Pipelined, Reply
from respool.broker.partitions.partition import Partition
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api
from respool.wire.codec import decode_request

VERSION = 12
TIMED_OUT, NOT_LEADER, STORAGE_ERROR = 7, 6, 56


def begin(
    broker: RunningBroker,
    topic: str = "rides",
    *,
    acks: int = 1,
    timeout_ms: int = 30_000,
    sequence: int | None = None,
) -> Outcome:
    """With a sequence it is an idempotent producer's."""
    is_idempotent = sequence is not None
    records = build_batch(
        [NewRecord(value=b"v", timestamp_ms=1_000)],
        producer_id=7 if is_idempotent else -1,
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=-1 if sequence is None else sequence,
    )
    frame = encode_request(
        Api.PRODUCE,
        VERSION,
        transactional_id=None,
        acks=acks,
        timeout=timeout_ms,
        topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    )
    return handle(decode_request(frame), broker.broker)


def answer_in(reply: Reply) -> Any:
    decoded = decode_reply(Api.PRODUCE, VERSION, b"".join(reply))
    return decoded.responses[0].partition_responses[0]


@pytest.fixture
def rides(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("rides")
    return running_broker


def test_acks_1_waits_for_the_disk_and_what_it_acknowledged_can_be_read(
    rides: RunningBroker,
) -> None:
    ends = []

    async def story() -> None:
        rides.offload.hold()
        partition = rides.broker.partitions.find("rides", 0)
        outcome = begin(rides)
        assert isinstance(outcome, Pipelined)
        await asyncio.sleep(0)
        assert not outcome.is_complete
        assert (partition.log.log_end, partition.high_watermark) == (1, 0)
        # Called as the reply leaves.
        outcome.then(lambda reply: ends.append((answer_in(reply), partition.high_watermark)))
        rides.offload.release()
        await rides.broker.flusher.drain()

    rides.run(story())
    ((answer, high_watermark),) = ends
    assert (answer.error_code, answer.base_offset, high_watermark) == (0, 0, 1)


@pytest.mark.parametrize("flush", ["os", "interval"])
def test_acks_1_does_not_wait_where_the_topic_says_so(
    running_broker: RunningBroker, flush: str
) -> None:
    running_broker.create_topic("quick", respool_flush=flush)

    async def story() -> None:
        running_broker.offload.hold()
        outcome = begin(running_broker, "quick")
        assert isinstance(outcome, list)
        assert answer_in(outcome).error_code == 0
        running_broker.offload.release()

    running_broker.run(story())
    assert running_broker.offset("quick", at=LATEST) == 1


def test_acks_1_and_acks_all_share_a_sync(rides: RunningBroker) -> None:
    # The first sync of a new partition makes its folder durable, too.
    rides.run(_acknowledged(rides))

    async def story() -> None:
        rides.offload.hold()
        # The first batch's sync begins without the others, which share the next one.
        outcomes = [begin(rides)]
        while not rides.offload.held:
            await asyncio.sleep(0)
        outcomes += [begin(rides, acks=acks) for acks in (1, -1, 1)]
        syncs = rides.disk.counters.syncs
        rides.offload.release()
        for outcome in outcomes:
            assert isinstance(outcome, Pipelined)
            assert answer_in(await outcome.wait()).error_code == 0
        assert rides.disk.counters.syncs - syncs == 2

    rides.run(story())


def test_a_sync_that_does_not_end_in_time_is_told_with_acks_1(rides: RunningBroker) -> None:
    async def story() -> None:
        rides.offload.hold()
        outcome = begin(rides, timeout_ms=1)
        assert isinstance(outcome, Pipelined)
        answer = answer_in(await outcome.wait())
        assert (answer.error_code, answer.error_message) == (
            TIMED_OUT,
            "rides-0: not on disk in time",
        )
        rides.offload.release()
        await rides.broker.flusher.drain()

    rides.run(story())
    assert rides.offset("rides", at=LATEST) == 1


def test_a_retry_that_waits_too_long_with_acks_1_is_told_what_the_leader_has(
    rides: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. A batch is on its leader's disk, and on no follower's.   2. Another one follows, which the disk does not have.
    3. The first one is sent again, and waits behind the second one.
    """
    rides.run(_acknowledged(rides))

    async def story() -> None:
        rides.offload.hold()
        first = begin(rides, sequence=0)
        while not rides.offload.held:
            await asyncio.sleep(0)
        begin(rides, sequence=1)
        again = begin(rides, timeout_ms=100, sequence=0)
        rides.offload.release(1)
        assert isinstance(first, Pipelined)
        assert isinstance(again, Pipelined)
        assert answer_in(await first.wait()).error_code == 0
        with monkeypatch.context() as patched:
            patched.setattr(Partition, "high_watermark", 1)
            answer = answer_in(await again.wait())
        assert (answer.error_code, answer.base_offset) == (0, 1)
        rides.offload.release()
        await rides.broker.flusher.drain()

    rides.run(story())


def test_whoever_waits_with_acks_1_is_told_when_the_disk_fails(rides: RunningBroker) -> None:
    rides.disk.faults.fail("sync", path="rides-0/*.log")

    async def story() -> Any:
        outcome = begin(rides)
        assert isinstance(outcome, Pipelined)
        return answer_in(await outcome.wait())

    assert rides.run(story()).error_code == STORAGE_ERROR


def test_whoever_waits_with_acks_1_is_told_when_the_topic_is_deleted(rides: RunningBroker) -> None:
    async def story() -> Any:
        rides.offload.hold()
        outcome = begin(rides)
        assert isinstance(outcome, Pipelined)
        deletion = asyncio.ensure_future(rides.broker.topics.delete("rides"))
        while len(rides.broker.partitions):
            await asyncio.sleep(0)
        rides.offload.release()
        await deletion
        return answer_in(await outcome.wait())

    assert rides.run(story()).error_code == NOT_LEADER


def test_with_acks_1_what_was_acknowledged_is_there_after_a_power_cut(
    rides: RunningBroker,
) -> None:
    for _ in range(20):
        rides.run(_acknowledged(rides))
    rides.restart(crash=True)
    assert rides.offset("rides", at=LATEST) == 20


async def _acknowledged(broker: RunningBroker) -> None:
    outcome = begin(broker)
    assert isinstance(outcome, Pipelined)
    assert answer_in(await outcome.wait()).error_code == 0
