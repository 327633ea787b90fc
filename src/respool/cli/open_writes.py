"""Transactions that are open in a partition, as its leader tells of them (DescribeProducers)."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWrite:
    """A transaction as one partition sees it: begun here, and not ended."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    # When the producer wrote here last.
    last_ms: int
    coordinator_epoch: int

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def epoch_of_end(self) -> int:
        """The coordinator's, for a marker that others write: the partition may have had no word of one yet."""
        return max(0, self.coordinator_epoch)


def open_writes(topic: str, partition: Any) -> list[OpenWrite]:
    """Of one partition of the reply."""
    return [
        OpenWrite(
            topic=topic,
            partition=partition.partition_index,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            start_offset=one.current_txn_start_offset,
            last_ms=one.last_timestamp,
            coordinator_epoch=one.coordinator_epoch,
        )
        for one in partition.active_producers
        if one.current_txn_start_offset >= 0
    ]
