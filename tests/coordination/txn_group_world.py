"""A group coordinator whose log also has records of transactions, and the markers that end them."""

from typing import Any, NamedTuple, TypeAlias

from coordination.consumer_world import ConsumerWorld
from coordination.group_world import GROUP, TOPIC
from respool.coordination.decision import CoordinatorRecord, Decision, RecordsProducer
from respool.coordination.groups.group_coordinator_shard import GroupCoordinatorShard
from respool.coordination.groups.group_requests import (
    OffsetToCommit,
    TopicToCommit,
    TxnOffsetCommit,
)
from respool.model.errors import RequestError
from respool.model.ids import NO_PRODUCER_ID, Offset, ProducerId

ONE, TWO, THREE = ProducerId(1), ProducerId(2), ProducerId(3)


class Marker(NamedTuple):
    producer_id: ProducerId
    is_commit: bool


class Written(NamedTuple):
    record: CoordinatorRecord
    producer_id: ProducerId


LogEntry: TypeAlias = Written | Marker


class TxnGroupWorld(ConsumerWorld):
    def __init__(self, **settings: Any) -> None:
        # What `log` has, with whose transaction it is part of, and with the markers.
        self.entries: list[LogEntry] = []
        self.last_producer: RecordsProducer | None = None
        super().__init__(**settings)

    def carry_out(self, decision: Decision) -> None:
        super().carry_out(Decision(timers=decision.timers, answers=decision.answers))
        self.last_producer = decision.producer
        producer_id = NO_PRODUCER_ID
        if decision.producer is not None:
            producer_id = decision.producer.producer_id
        for record in decision.records:
            self.log.append(record)
            self._append(Written(record, producer_id))

    def folded(self) -> GroupCoordinatorShard:
        shard = GroupCoordinatorShard(self.settings, rng=self.rng)
        shard.on_topics_changed(dict(self.topics), now_ms=self.now_ms)
        for entry in self.entries:
            _replay(shard, entry)
        return shard

    def mark(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """The transaction's marker reaches this partition."""
        self._append(Marker(producer_id, is_commit))

    def commit_in(
        self, producer_id: ProducerId, offset: int, *, partition: int = 0, **fields: Any
    ) -> RequestError | None:
        """Commit one offset in a transaction; return what is wrong with that."""
        words: dict[str, Any] = {
            "group_id": GROUP,
            "producer_id": producer_id,
            "producer_epoch": 0,
            "topics": (TopicToCommit(TOPIC, (OffsetToCommit(partition, Offset(offset)),)),),
        }
        reply = self.now(TxnOffsetCommit(**(words | fields)))
        error = reply.topics[0].partitions[0].error
        assert error is None or isinstance(error, RequestError)
        return error

    def _append(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        _replay(self.shard, entry)


def _replay(shard: GroupCoordinatorShard, entry: LogEntry) -> None:
    if isinstance(entry, Marker):
        shard.replay_end_transaction(entry.producer_id, is_committed=entry.is_commit)
    else:
        shard.replay(entry.record, producer_id=entry.producer_id)
