"""A follower's copy of a log, with transactions and compaction, against the list of batches that came: whatever happens
to either, the copy tells of producers, transactions and offsets what those batches tell.
"""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from log.log_world import LogWorld
from log.transaction_world import COMPACTED, FOLDER, FUZZ, TransactionWorld
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.log.producers.producer_states import ProducerStates
from respool.model.ids import Offset
from respool.records.batch import RecordBatch, read_header
from respool.records.markers import read_marker
from respool.sim.disk.simulated_disk import SimDisk

FOREVER_MS = 10**12


class Copy:
    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(Random(seed))
        # The batches that came, as they came.
        self.batches: list[RecordBatch] = []
        self.high_watermark = self.recovery_point = Offset(0)
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            disk=self.disk,
            folder=FOLDER,
            config=COMPACTED,
            now_ms=1,
            log_start=Offset(0),
            recovery_point=self.recovery_point,
            clean=clean,
            producer_expiration_ms=FOREVER_MS,
            high_watermark=self.high_watermark,
            is_replicated=True,
        )

    def fetch(self, leader: PartitionLog, bytes_max: int) -> None:
        data = leader.read(
            ReadSpec(
                self.log.log_end,
                max_offset=leader.log_end,
                bytes_max=bytes_max,
                with_empty=True,
            )
        )
        end = self.log.log_end
        new = [
            RecordBatch(read_header(one), one)
            for one in LogWorld.whole_batches(data)
            if read_header(one).base_offset >= end
        ]
        done = self.log.append_fetched(data, now_ms=1)
        self.batches += new
        assert done.byte_count == sum(len(one.data) for one in new)

    def commit(self, offset: int) -> None:
        self.high_watermark = Offset(max(self.high_watermark, min(offset, self.log.log_end)))
        self.log.on_high_watermark(self.high_watermark)

    def sync(self) -> None:
        if (pending := self.log.begin_sync()) is not None:
            pending.run()
            self.log.finish_sync(pending)

    def truncate(self, offset: int) -> None:
        end = self.log.end_after_truncation(Offset(offset))
        self.recovery_point = min(self.recovery_point, end)
        self.log.truncate_to(Offset(offset))
        assert self.log.log_end == end
        self.lost_from(end)

    def crash(self) -> None:
        synced = self.log.synced_end
        self.disk.crash()
        self.disk = self.disk.reopen()
        self.open(clean=False)
        assert self.log.log_end >= synced
        self.lost_from(self.log.log_end)

    def stop_and_start(self) -> None:
        self.log.close()
        self.recovery_point = self.log.synced_end
        self.disk = self.disk.reopen()
        self.open(clean=True)

    def lost_from(self, end: Offset) -> None:
        self.batches = [one for one in self.batches if one.header.next_offset <= end]
        self.high_watermark = min(self.high_watermark, end)

    # -- looking -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        log = self.log
        segments = log._parts.segments.all
        stored = b"".join(one.read(0, one.size) for one in segments if one.size)
        assert stored == b"".join(one.data for one in self.batches)
        # Where the last ones were cut off behind a gap, the log ends with those before, or where they began.
        assert log.log_end == (self.batches[-1].header.next_offset if self.batches else 0)
        self.check_producers()
        self.check_indexes()

    def check_producers(self) -> None:
        """Fold the batches, and look at each end of a transaction."""
        producers = ProducerStates(expiration_ms=FOREVER_MS)
        aborted, undecided = [], []
        opened: dict[int, Offset] = {}
        for batch in self.batches:
            header = batch.header
            marker = read_marker(batch)
            if marker is None:
                producers.update(header, base_offset=header.base_offset)
                if header.is_transactional and not header.is_control:
                    opened.setdefault(header.producer_id, header.base_offset)
                continue
            offset = header.base_offset
            producers.end_transaction(marker, offset=offset, timestamp_ms=header.max_timestamp)
            first = opened.pop(marker.producer_id, None)
            if first is None:
                continue
            if not marker.is_commit:
                aborted.append((marker.producer_id, first, offset))
            if offset >= self.high_watermark:
                undecided.append(first)
        assert self.log._parts.producers == producers
        found = [one for segment in self.log._parts.segments.all for one in segment.aborted.all()]
        assert [one[:3] for one in found] == aborted
        stable = min([self.high_watermark, *undecided, *opened.values()])
        assert self.log.last_stable_offset(self.high_watermark) == stable

    def check_indexes(self) -> None:
        by_last = {one.header.last_offset: one for one in self.batches}
        for segment in self.log._parts.segments.all:
            if segment.size:
                indexes = segment.indexes()
                for entry in indexes.offsets:
                    data = by_last[entry.last_offset].data
                    assert segment.read(entry.position, len(data)) == data
                for time in indexes.times:
                    assert by_last[time.last_offset].header.max_timestamp == time.timestamp


def compact(leader: TransactionWorld) -> None:
    leader.now_ms += 500
    leader.roll()
    leader.sync()
    leader.compact()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(-1, 3), st.sampled_from("abcd")),
        st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("compact")),
        st.tuples(st.just("fetch"), st.sampled_from([1, 300, 1000, 10**6])),
        st.tuples(st.just("fetch"), st.just(10**6)),
        st.tuples(st.just("commit"), st.integers(0, 60)),
        st.tuples(st.just("sync")),
        st.tuples(st.just("write down")),
        st.tuples(st.just("truncate"), st.integers(0, 60)),
        st.tuples(st.just("crash")),
        st.tuples(st.just("stop")),
    ),
    min_size=15,
    max_size=80,
)


@given(seed=st.integers(0, 2**32), steps=STEPS)
@settings(max_examples=5000 if FUZZ else 200, deadline=None)
def test_a_copy_tells_what_the_batches_that_came_tell(
    seed: int, steps: list[tuple[object, ...]]
) -> None:
    leader, copy = TransactionWorld.new(config=COMPACTED), Copy(seed)
    for step in steps:
        match step:
            case ("write", int(producer), str(key)):
                leader.write(producer, *([key] * (1 + seed % 3)), size=40)
            case ("end", int(producer), bool(is_commit)):
                leader.end(producer, is_commit=is_commit)
            case ("compact",):
                compact(leader)
            case ("fetch", int(bytes_max)):
                if copy.log.log_end < leader.log_end:
                    copy.fetch(leader.log, bytes_max)
            case ("commit", int(offset)):
                copy.commit(offset)
            case ("sync",):
                copy.sync()
            case ("write down",):
                copy.recovery_point = copy.log.synced_end
            case ("truncate", int(offset)):
                copy.truncate(offset)
            case ("crash",):
                copy.crash()
            case ("stop",):
                copy.stop_and_start()
        copy.check()
