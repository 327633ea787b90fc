"""Delayed messages put into a stopped broker's folder by the code that the broker has for them: the log, and the index.

Through a broker every message is checked and read, which takes twenty times as long as its place in the index.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import cast
from uuid import UUID

from respool.broker.deliveries.partition_delays import FOLDER
from respool.drivers.local_disk import LocalDisk
from respool.log.folder.data_folder import DataFolder
from respool.model.ids import BrokerId, Offset, TopicId, TopicPartition
from respool.model.topic_config import TopicConfig
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.timing.delay_records import WaitingRecord
from respool.timing.pending import Pending

BROKER = BrokerId(1)
# Steps of the index, as many after each batch as in a busy broker.
STEP = 20_000
ADVANCE_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    batch: RecordBatch
    due_ms: Sequence[int]

    @classmethod
    def of(cls, value: bytes, due_ms: Sequence[int], *, now_ms: int) -> "WaitingBatch":
        records = [
            NewRecord(
                value=value,
                timestamp_ms=now_ms,
                headers=(("respool-deliver-at", b"%d" % one),),
            )
            for one in due_ms
        ]
        data = build_batch(records)
        return cls(RecordBatch(read_header(data), data), due_ms)


def add_waiting(
    folder: Path,
    place: TopicPartition,
    topic_id: UUID,
    config: TopicConfig,
    batches: Sequence[WaitingBatch],
    *,
    count: int,
) -> None:
    """Append that many batches, over and over the same, to a partition that has records."""
    disk = LocalDisk(str(folder))
    data = DataFolder.open(disk=disk, broker_id=BROKER, new_cluster_id="")
    now_ms = int(time.time() * 1000)
    log = data.open_partition(place, topic_id=TopicId(topic_id), config=config, now_ms=now_ms)
    pending = Pending.open(
        disk,
        f"{place}/{FOLDER}",
        now_ms=now_ms,
        log_start=log.local_start,
        log_end=log.log_end,
    )
    assert pending.scanned_to == log.log_end, "the broker had not fed all before it stopped"
    epoch = log.epoch_at(Offset(log.log_end - 1))
    for number, one in enumerate(islice(cycle(batches), count)):
        appended = log.append(one.batch, leader_epoch=epoch, now_ms=now_ms)
        for fact in _facts(one, appended.base_offset):
            pending.on_waiting(fact)
        pending.on_stable([], end=Offset(appended.last_offset + 1))
        if number % ADVANCE_EVERY == 0:
            pending.advance(now_ms, deliver_max=0, step=STEP)
    pending.scanned_epoch = epoch
    pending.write_checkpoint()
    is_clean = data.close({place: log}, {place: log.log_end})
    assert is_clean, "the folder was not closed cleanly"


def _facts(batch: WaitingBatch, base: Offset) -> Iterator[WaitingRecord]:
    """One object for all of them, with what the index asks for: to make 100 million takes longer than to enter them."""
    fact = _Fact()
    for offset, due_ms in enumerate(batch.due_ms, base):
        fact.offset = fact.first = Offset(offset)
        fact.due_ms = due_ms
        yield cast(WaitingRecord, fact)


class _Fact:
    offset = first = Offset(0)
    due_ms = 0
    id: bytes | None = None
    replaces: Offset | None = None
