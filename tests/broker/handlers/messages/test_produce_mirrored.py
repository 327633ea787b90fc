"""Produce to a mirror topic: batches with offsets of their own, from respool mirror alone."""

from typing import Any

import pytest

from broker.handlers.messages.test_produce import request
from broker.running_broker import EARLIEST, LATEST, RunningBroker, StartBroker
from respool.log.partition_log import ReadSpec
from respool.model.ids import Offset
from respool.records.batch import HEADER_BYTES, read_header, seal
from respool.records.build import NewRecord, build_batch
from respool.records.markers import EndTransactionMarker, build_marker
from respool.records.mirrored_batches import fillers, prepare
from respool.wire.api_table import Api

VERSION = 9
CORRUPT, POLICY_VIOLATION, OUT_OF_ORDER, BAD_RECORD = 2, 44, 45, 87


def batch(base: int, *values: bytes, **fields: Any) -> bytes:
    records = [NewRecord(value=value, timestamp_ms=1_000) for value in values or (b"v",)]
    return build_batch(records, base_offset=base, leader_epoch=5, **fields)


def marker(base: int, producer_id: int, *, is_commit: bool) -> bytes:
    built = build_marker(
        EndTransactionMarker(
            producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, is_commit=is_commit
        ),
        timestamp_ms=1_000,
    )
    return base.to_bytes(8) + bytes(built.data)[8:]


def transactional(base: int, producer_id: int, sequence: int = 0) -> bytes:
    return batch(
        base,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def mirror(broker: RunningBroker, *batches: bytes, begin: int | None = None) -> Any:
    """Send them as a mirror does whose copy ends where the first of them begins."""
    data = b"".join(batches)
    first = int.from_bytes(data[:8]) if begin is None else begin
    return send(broker, prepare(data, begin=Offset(first)).data)


def send(broker: RunningBroker, records: bytes, *, acks: int = -1) -> Any:
    reply = broker.ask(Api.PRODUCE, VERSION, **request(("rides", 0, records), acks=acks))
    return reply.responses[0].partition_responses[0]


def stored(broker: RunningBroker) -> bytes:
    log = broker.broker.partitions.find("rides", 0).log
    end = log.log_end
    return bytes(
        log.read(ReadSpec(log.log_start, max_offset=end, bytes_max=1 << 20, with_empty=True))
    )


def without_epoch(data: bytes) -> bytes:
    """Everything but the four bytes of a single batch that a leader writes over."""
    return data[:12] + data[16:]


@pytest.fixture
def rides(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("rides", respool_mirror="true", retention_ms="-1")
    return running_broker


def test_batches_get_the_offsets_they_have_and_stay_as_they_are(rides: RunningBroker) -> None:
    sent = batch(0, b"a", b"b")
    answer = mirror(rides, sent)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert without_epoch(stored(rides)) == without_epoch(sent)
    answer = mirror(rides, batch(2, b"c"), batch(3, b"d", b"e"))
    assert (answer.error_code, answer.base_offset) == (0, 2)
    assert rides.offset("rides", at=LATEST) == 5


def test_what_is_here_already_is_left_out(rides: RunningBroker) -> None:
    mirror(rides, batch(0), batch(1))
    before = stored(rides)
    assert mirror(rides, batch(0), batch(1)).error_code == 0
    assert stored(rides) == before
    assert mirror(rides, batch(1), batch(2)).error_code == 0
    assert rides.offset("rides", at=LATEST) == 3


def test_another_batch_where_the_log_has_one_is_no_retry(rides: RunningBroker) -> None:
    """It was acknowledged, and the copy kept what the source had lost."""
    mirror(rides, batch(0, b"a"), batch(1, b"b"))
    for sent in ([batch(0, b"x")], [batch(1, b"x"), batch(2)], [batch(0, b"a", b"b")]):
        answer = mirror(rides, *sent)
        assert answer.error_code == BAD_RECORD
        assert "the source has one from" in answer.error_message
    assert rides.offset("rides", at=LATEST) == 2


def test_a_retry_after_compaction_or_deletion_is_one(rides: RunningBroker) -> None:
    sent = batch(0, b"a", b"b")
    mirror(rides, sent, fillers(Offset(2), Offset(5)))
    thinned = read_header(sent)._replace(record_count=1)
    assert mirror(rides, bytes(seal(thinned, sent[HEADER_BYTES:-9]).data)).error_code == 0
    assert mirror(rides, batch(2, b"x", b"y", b"z")).error_code == 0
    assert rides.offset("rides", at=LATEST) == 5


def test_a_batch_whose_predecessor_is_missing_is_refused(rides: RunningBroker) -> None:
    mirror(rides, batch(0))
    answer = mirror(rides, batch(2))
    assert answer.error_code == OUT_OF_ORDER
    assert "begins at offset 2, but the log ends at 1" in answer.error_message
    assert rides.offset("rides", at=LATEST) == 1


def test_a_batch_that_overlaps_the_end_is_refused(rides: RunningBroker) -> None:
    mirror(rides, batch(0))
    answer = mirror(rides, batch(0, b"a", b"b"))
    assert answer.error_code == BAD_RECORD
    assert rides.offset("rides", at=LATEST) == 1


def test_a_copy_that_lost_all_and_starts_inside_a_batch_gets_it_whole(
    rides: RunningBroker,
) -> None:
    log = rides.broker.partitions.find("rides", 0).log
    log.truncate_fully_and_start_at(Offset(5))
    answer = send(rides, prepare(batch(4, b"a", b"b"), begin=Offset(5), is_empty=True).data)
    assert answer.error_code == 0
    assert (log.log_start, log.log_end) == (5, 6)
    assert mirror(rides, batch(6)).error_code == 0


def test_a_damaged_batch_is_refused_and_nothing_of_its_request_is_written(
    rides: RunningBroker,
) -> None:
    data = bytearray(prepare(batch(0) + batch(1), begin=Offset(0)).data)
    data[-1] ^= 1
    assert send(rides, bytes(data)).error_code == CORRUPT
    assert rides.offset("rides", at=LATEST) == 0


@pytest.mark.parametrize("epoch", [-1, 0, 5])
@pytest.mark.parametrize("acks", [1, -1])
def test_ordinary_producers_are_told_whose_topic_it_is(
    rides: RunningBroker, epoch: int, acks: int
) -> None:
    ordinary = build_batch([NewRecord(value=b"v", timestamp_ms=1_000)], leader_epoch=epoch)
    answer = send(rides, ordinary, acks=acks)
    assert answer.error_code == POLICY_VIOLATION
    assert "respool mirror promote rides" in answer.error_message
    assert rides.offset("rides", at=LATEST) == 0


def test_a_mirror_is_refused_by_a_topic_that_is_none(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides")
    assert mirror(running_broker, batch(0)).error_code == BAD_RECORD
    assert running_broker.offset("rides", at=LATEST) == 0


def test_a_copy_may_start_later_than_at_zero(rides: RunningBroker) -> None:
    begin = 3 * 2**31
    assert send(rides, fillers(Offset(0), Offset(begin))).error_code == 0
    assert mirror(rides, batch(begin)).error_code == 0
    rides.ask(
        Api.DELETE_RECORDS,
        2,
        topics=[
            {"name": "rides", "partitions": [{"partition_index": 0, "offset": begin}]},
        ],
        timeout=1000,
    )
    assert rides.offset("rides", at=EARLIEST) == begin
    assert rides.offset("rides", at=LATEST) == begin + 1


def test_a_compacted_mirror_is_told_where_it_starts_too(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", respool_mirror="true", cleanup_policy="compact")
    mirror(
        running_broker, batch(4, b"no key: the source let it in before it was compacted"), begin=0
    )
    topics = [{"name": "rides", "partitions": [{"partition_index": 0, "offset": 4}]}]
    reply = running_broker.ask(Api.DELETE_RECORDS, 2, topics=topics, timeout=1000)
    assert reply.topics[0].partitions[0].error_code == 0
    assert running_broker.offset("rides", at=EARLIEST) == 4


def test_transactions_end_as_they_do_at_the_source(rides: RunningBroker) -> None:
    mirror(rides, transactional(0, 7), transactional(1, 8))
    partition = rides.broker.partitions.find("rides", 0)
    assert partition.last_stable_offset == 0
    mirror(rides, marker(2, 7, is_commit=False))
    assert partition.last_stable_offset == 1
    mirror(rides, marker(3, 8, is_commit=True))
    assert partition.last_stable_offset == 4
    aborted = partition.log.aborted_in(Offset(0), Offset(4))
    assert [(one.producer_id, one.first_offset) for one in aborted] == [(7, 0)]


def test_no_other_transaction_ends_in_a_mirror(rides: RunningBroker) -> None:
    mirror(rides, transactional(0, 7))
    ended = {
        "producer_id": 7,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": [{"name": "rides", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    reply = rides.ask(Api.WRITE_TXN_MARKERS, 1, markers=[ended])
    assert reply.markers[0].topics[0].partitions[0].error_code == POLICY_VIOLATION
    assert rides.offset("rides", at=LATEST) == 1


def test_no_transaction_takes_a_mirror_in(rides: RunningBroker) -> None:
    reply = rides.ask(
        Api.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[{"name": "rides", "partitions": [0]}],
    )
    (result,) = reply.results_by_topic_v3_and_below[0].results_by_partition
    assert result.partition_error_code == POLICY_VIOLATION


def test_a_promoted_mirror_goes_on_after_its_last_offset(rides: RunningBroker) -> None:
    mirror(rides, batch(0), batch(1))
    rides.ask(
        Api.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[
            {
                "resource_type": 2,
                "resource_name": "rides",
                "configs": [
                    {"name": "respool.mirror", "config_operation": 0, "value": "false"},
                ],
            }
        ],
        validate_only=False,
    )
    assert rides.produce("rides") == 2
    assert mirror(rides, batch(3)).error_code == BAD_RECORD


def test_two_clusters_give_out_different_producer_ids(start_broker: StartBroker) -> None:
    found = [
        start_broker().ask(
            Api.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=1000,
            producer_id=-1, producer_epoch=-1,
        ).producer_id
        for _ in range(2)
    ]  # fmt: skip
    # Kafka begins at 0.
    assert min(found) >= 2**40
    assert abs(found[0] - found[1]) >= 2**40
