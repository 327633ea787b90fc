"""A sink's state in the broker: a record in a compacted topic, and a group's committed offset that points at it.

```
 respool-spark-sinks   key: the sink   value: its state, JSON          kept forever, since the topic is compacted
 offsets of the group  named as the sink: the record's offset, and     read with one request; deleted some days after
                       the state itself if it is short                 the last change (offsets.retention.minutes)
```
Both are written in one transaction, under a transactional id that only deciders of this sink use. Initializing that id
(`become_decider`) completes or aborts what another decider had begun, and fences its later requests. So a process that
becomes the decider, then reads, then writes, knows that the state was not changed in between.
"""

import json
import time
from dataclasses import asdict
from typing import Any

from respool.client.kafka.admin import create_topic
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import PRODUCER_FENCED, Code, refused
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, UnknownTopic
from respool.client.kafka.groups import NO_GENERATION, OffsetAndMetadata, commit_fields, worst_code
from respool.client.kafka.partition_queue import TRANSACTIONAL, ProducerIdentity
from respool.client.kafka.producer_ids import init_producer_id
from respool.client.kafka.sequenced_writer import SequencedWriter
from respool.client.kafka.versions import FETCH_BY_NAME, TRANSACTIONS_V2
from respool.records.batch import RecordBatch
from respool.records.build import NewRecord, build_batch
from respool.records.record import Record, read_records
from respool.records.validate import walk_batches
from respool.spark.sink.errors import DeciderFenced, NotSupported, StateDamaged
from respool.spark.sink.names import STATE_TOPIC, decider_of
from respool.spark.sink.state import SinkState, Summary
from respool.wire.api_table import Api

# A change takes milliseconds; if its decider dies, this timeout ends it.
DECIDER_TIMEOUT_MS = 60_000
# Brokers accept 4,096 bytes of metadata with an offset.
TEXT_BYTES_MAX = 3_500
_RECORD_BYTES_MAX = 64 * 1024 * 1024
_PARTITION = 0


class StateStore:
    def __init__(self, cluster: Cluster, sink: str) -> None:
        self._cluster = cluster
        self._sink = sink
        self._decider = Coordinator(cluster, decider_of(sink), is_transaction=True)
        self._group = Coordinator(cluster, sink, is_transaction=False)

    # Reads.

    def summary(self) -> Summary | None:
        """The part that tasks need, in one request; None also if the offset has been deleted.

        A change in progress is not waited for: its decider may be dead.
        """
        found = self._pointer(is_stable=False)
        if found is None:
            return None
        _, text = found
        return _summary_in(text)

    def state(self) -> SinkState | None:
        found = self._pointer(is_stable=True)
        if found is None:
            return self._last_in_topic()
        offset, text = found
        state = _state_in(text) or self._at(offset) or self._last_in_topic()
        if state is None:
            raise StateDamaged(
                f"{STATE_TOPIC} has no state of {self._sink}, which should be at offset {offset}"
            )
        return state

    def _pointer(self, *, is_stable: bool) -> tuple[int, str] | None:
        reply = self._group.request(
            Api.OFFSET_FETCH,
            {
                "group_id": self._sink,
                "topics": [{"name": STATE_TOPIC, "partition_indexes": [_PARTITION]}],
                "require_stable": is_stable,
            },
            doing=f"the state of {self._sink}",
            code_of=_offset_code,
        )
        (one,) = reply.topics[0].partitions
        if one.error_code == Code.unknown_topic_or_partition or int(one.committed_offset) < 0:
            return None
        return int(one.committed_offset), str(one.metadata or "")

    def _at(self, offset: int) -> SinkState | None:
        """The state at this offset. The record and the offset were committed together, so read_uncommitted is safe."""
        records, _, _ = self._fetch(offset, is_committed=False)
        for record in records:
            if record.offset == offset and record.key == self._sink.encode() and record.value:
                return SinkState.from_json(record.value)
        return None

    def _last_in_topic(self) -> SinkState | None:
        """The latest committed record of this sink."""
        found: Record | None = None
        key = self._sink.encode()
        offset = 0
        try:
            while True:
                records, next_offset, end = self._fetch(offset, is_committed=True)
                for record in records:
                    if record.key == key:
                        found = record
                if next_offset >= end:
                    break
                offset = next_offset
        except UnknownTopic:
            return None
        return None if found is None or found.value is None else SinkState.from_json(found.value)

    def _fetch(self, offset: int, *, is_committed: bool) -> tuple[list[Record], int, int]:
        """Return the records from this offset, the next offset to fetch, and the end offset."""

        def attempt() -> tuple[list[Record], int, int]:
            leader = self._cluster.refresh(STATE_TOPIC).leader_of(_PARTITION)
            if leader is None:
                raise BrokerUnreachable(f"{STATE_TOPIC}/{_PARTITION} has no leader")
            reply = self._cluster.request(
                leader.broker,
                Api.FETCH,
                _fetch_fields(offset, is_committed=is_committed),
                versions=FETCH_BY_NAME,
            )
            if reply.error_code:
                raise refused(f"reading {STATE_TOPIC}", reply.error_code)
            (one,) = reply.responses[0].partitions
            if one.error_code == Code.offset_out_of_range and offset < int(one.log_start_offset):
                return [], int(one.log_start_offset), int(one.log_start_offset) + 1
            if one.error_code:
                raise refused(f"reading {STATE_TOPIC}", one.error_code)
            aborted = {
                (int(each.producer_id), int(each.first_offset))
                for each in one.aborted_transactions or ()
            }
            records, next_offset = _records(bytes(one.records or b""), aborted, offset)
            return records, next_offset, int(one.last_stable_offset)

        return self._cluster.retrying(attempt)

    # Changes.

    def become_decider(self) -> ProducerIdentity:
        """
        Raises:
            NotSupported: the cluster uses transaction protocol version 1.
        """
        if not self._decider.has_epoch_per_transaction():
            raise NotSupported(
                "exactly-once writing needs transactions of version 2 (Respool, or Kafka 4 and newer); "
                "these brokers have version 1. exactlyOnce=false writes without them"
            )
        return init_producer_id(
            self._cluster, decider_of(self._sink), timeout_ms=DECIDER_TIMEOUT_MS
        )

    def write(self, decider: ProducerIdentity, state: SinkState) -> None:
        """
        Raises:
            DeciderFenced: another process became the decider; nothing was written.
            BrokerUnreachable: it is unknown whether it was written; the next decider finds out.
        """
        try:
            offset = self._produce(decider, state)
            self._point_at(decider, offset, state)
            self._decider.request(
                Api.END_TXN,
                self._who(decider) | {"committed": True},
                versions=TRANSACTIONS_V2.end_txn,
                doing=f"deciding for {self._sink}",
            )
        except BrokerRefused as error:
            if error.code in PRODUCER_FENCED or error.code == Code.invalid_txn_state:
                raise DeciderFenced(str(error)) from error
            if error.retriable:
                raise BrokerUnreachable(str(error)) from error
            raise

    def _produce(self, decider: ProducerIdentity, state: SinkState) -> int:
        batch = build_batch(
            [
                NewRecord(
                    key=self._sink.encode(),
                    value=state.to_json().encode(),
                    timestamp_ms=time.time_ns() // 1_000_000,
                )
            ],
            producer_id=decider.producer_id,
            producer_epoch=decider.epoch,
            base_sequence=0,
            is_transactional=True,
        )
        writer = SequencedWriter(
            self._cluster,
            policy=TRANSACTIONAL,
            transactional_id=decider_of(self._sink),
            versions=TRANSACTIONS_V2.produce,
        )
        writer.add((STATE_TOPIC, _PARTITION), batch)
        retry = self._cluster.retry_timer()
        try:
            while True:
                try:
                    (written,) = writer.flush(limit_ms=self._cluster.retry_ms)
                except UnknownTopic as error:
                    self._create_topic()
                    retry.wait_or_raise(
                        BrokerUnreachable(f"{STATE_TOPIC} was just created: {error}")
                    )
                else:
                    # A duplicate may be acknowledged without its offset: the next read then searches from the start.
                    return max(written.base_offset, 0)
        finally:
            writer.close()

    def _point_at(self, decider: ProducerIdentity, offset: int, state: SinkState) -> None:
        """Commit the record's offset for the sink's group, with the state or its summary as metadata."""
        fields = commit_fields(
            self._sink, {(STATE_TOPIC, _PARTITION): OffsetAndMetadata(offset, _text_of(state))}
        )
        del fields["generation_id_or_member_epoch"]
        self._group.request(
            Api.TXN_OFFSET_COMMIT,
            self._who(decider) | fields | {"generation_id": NO_GENERATION},
            doing=f"deciding for {self._sink}",
            versions=TRANSACTIONS_V2.txn_offset_commit,
            code_of=worst_code,
        )

    def _create_topic(self) -> None:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(4 * 1024 * 1024)}
        try:
            create_topic(self._cluster, STATE_TOPIC, partitions=1, configs=configs)
        except BrokerRefused as error:
            if error.code != Code.topic_already_exists:
                raise

    def _who(self, decider: ProducerIdentity) -> dict[str, Any]:
        return {
            "transactional_id": decider_of(self._sink),
            "producer_id": decider.producer_id,
            "producer_epoch": decider.epoch,
        }


def _text_of(state: SinkState) -> str:
    whole = state.to_json()
    if len(whole.encode()) <= TEXT_BYTES_MAX:
        return whole
    return json.dumps(asdict(state.summary))


def _state_in(text: str) -> SinkState | None:
    return SinkState.from_json(text) if '"format"' in text else None


def _summary_in(text: str) -> Summary:
    whole = _state_in(text)
    if whole is not None:
        return whole.summary
    try:
        fields: dict[str, Any] = json.loads(text)
        return Summary(**{**fields, "gone": tuple(fields["gone"])})
    except (ValueError, TypeError, KeyError) as error:
        raise StateDamaged(f"no summary of a sink's state: {text[:100]!r}") from error


def _offset_code(reply: Any) -> Any:
    if reply.error_code:
        return reply.error_code
    (one,) = reply.topics[0].partitions
    # If the topic does not exist yet, that is a valid answer.
    return 0 if one.error_code == Code.unknown_topic_or_partition else one.error_code


def _fetch_fields(offset: int, *, is_committed: bool) -> dict[str, Any]:
    partition = {
        "partition": _PARTITION,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1024 * 1024,
    }
    return {
        "replica_id": -1,
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 4 * 1024 * 1024,
        "isolation_level": int(is_committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": STATE_TOPIC, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def _records(data: bytes, aborted: set[tuple[int, int]], offset: int) -> tuple[list[Record], int]:
    """The records from this offset on, without those of aborted transactions; and the offset after the last batch."""
    found: list[Record] = []
    next_offset = offset
    for position, header in walk_batches(data):
        next_offset = header.next_offset
        # A decider's transaction has only one batch here, so an aborted one begins at the batch's base offset.
        if header.is_control or (header.producer_id, header.base_offset) in aborted:
            continue
        batch = RecordBatch(header, data[position : position + header.size])
        found += (
            one for one in read_records(batch, limit=_RECORD_BYTES_MAX) if one.offset >= offset
        )
    return found, next_offset
