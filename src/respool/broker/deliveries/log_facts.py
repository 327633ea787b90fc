"""Reads the delay headers of a partition's log. Runs in any thread.

```
 scanned_to                        last stable offset          high watermark
     | batches, without aborted ones      |  copies that an earlier leader wrote  |
     |          facts_below               |           facts_above                 |
```
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from respool.log.partition_log import AbortedTransaction, PartitionLog, ReadSpec
from respool.model.errors import RequestError
from respool.model.ids import LeaderEpoch, Offset
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.record import Record, read_records_at
from respool.records.validate import walk_batches
from respool.timing.delay_records import Cancel, Fact, WaitingRecord, read_fact, read_facts
from respool.timing.due_header import DelayRules

CHUNK_BYTES = 1024 * 1024
# The decompressed size limit of a batch: as for one that is produced.
BATCH_BYTES_MAX = 100 * 1024 * 1024


class ReadFacts(NamedTuple):
    """The delay facts of the batches from an offset to `end`."""

    facts: list[Fact]
    end: Offset
    # The leader epoch of the last batch.
    last_epoch: LeaderEpoch


class LogFacts:
    def __init__(self, log: PartitionLog, rules: DelayRules) -> None:
        self._log = log
        self._rules = rules
        # Batches whose records could not be read.
        self.unreadable_batches = 0
        self.read_bytes = 0

    def read(self, begin: Offset, max_offset: Offset, *, is_stable: bool = True) -> ReadFacts:
        """Return the facts of about `CHUNK_BYTES` of batches, beginning at `begin`.

        `max_offset` is at most the last stable offset; without `is_stable` at most the log end, and what is in
        transactions is left out.

        Raises:
            OffsetOutOfRange: the log starts after `begin` by now, or was truncated.
            StorageError: the log cannot be read.
        """
        facts: list[Fact] = []
        end, last_epoch = begin, LeaderEpoch(-1)
        batches = list(self._batches(begin, max_offset))
        aborted = self._aborted(batches) if is_stable else []
        for batch in batches:
            header = batch.header
            self.read_bytes += header.size
            end, last_epoch = header.next_offset, header.leader_epoch
            if header.is_transactional and (not is_stable or _is_aborted(header, aborted)):
                continue
            try:
                found = read_facts(batch, self._rules, limit=BATCH_BYTES_MAX)
            except RequestError:
                self.unreadable_batches += 1
                continue
            # The first batch may begin before the offset.
            facts += [one for one in found if _offset_of(one, begin) >= begin]
        return ReadFacts(facts, end, last_epoch)

    def facts_at(self, offsets: Iterable[Offset], *, bytes_max: int) -> dict[Offset, Fact | None]:
        """Return what the records at these offsets say, opening each batch once; None: nothing, or it is not there.

        After `bytes_max` bytes of records the rest is left out, but not all of them.
        """
        found: dict[Offset, Fact | None] = {}
        wanted = sorted(offsets)
        size = at = 0
        while at < len(wanted) and (size < bytes_max or not found):
            batch = self._batch_at(wanted[at])
            end = wanted[at] + 1 if batch is None else batch.header.next_offset
            inside = wanted[at : bisect_left(wanted, end, at)]
            at += len(inside)
            found.update(dict.fromkeys(inside))
            for record in self._records(batch, inside):
                found[record.offset] = read_fact(record, self._rules)
                size += len(record.value or b"")
        return found

    def fact_at(self, offset: Offset) -> Fact | None:
        return self.facts_at([offset], bytes_max=1)[offset]

    def id_at(self, offset: Offset) -> bytes | None:
        """The id of the record at an offset; None if it has none, or is not there."""
        fact = self.fact_at(offset)
        return fact.id if isinstance(fact, WaitingRecord | Cancel) else None

    def _batches(self, begin: Offset, max_offset: Offset) -> Iterator[RecordBatch]:
        data = self._log.read(ReadSpec(begin, max_offset=max_offset, bytes_max=CHUNK_BYTES))
        for position, header in walk_batches(data):
            if header.next_offset > begin:
                yield RecordBatch(header, data[position : position + header.size])

    def _batch_at(self, offset: Offset) -> RecordBatch | None:
        log = self._log
        if not log.local_start <= offset < log.log_end:
            return None
        data = log.read(ReadSpec(offset, max_offset=log.log_end, bytes_max=1))
        for position, header in walk_batches(data):
            if header.base_offset <= offset <= header.last_offset:
                return RecordBatch(header, data[position : position + header.size])
        return None

    def _records(self, batch: RecordBatch | None, offsets: Sequence[Offset]) -> list[Record]:
        if batch is None:
            return []
        try:
            return read_records_at(batch, offsets, limit=BATCH_BYTES_MAX)
        except RequestError:
            self.unreadable_batches += 1
            return []

    def _aborted(self, batches: list[RecordBatch]) -> list[AbortedTransaction]:
        if not any(one.header.is_transactional for one in batches):
            return []
        log = self._log
        begin = Offset(max(batches[0].header.base_offset, log.first_base_offset))
        return log.aborted_in(begin, batches[-1].header.next_offset)


def _is_aborted(header: BatchHeader, aborted: list[AbortedTransaction]) -> bool:
    return any(
        one.producer_id == header.producer_id
        and one.first_offset <= header.base_offset <= one.last_offset
        for one in aborted
    )


def _offset_of(fact: Fact, default: Offset) -> Offset:
    """Where the fact stands; a copy is always wanted, since its batch is the leader's."""
    return fact.offset if isinstance(fact, WaitingRecord | Cancel) else default
