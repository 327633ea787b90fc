"""Readers of a view see the parent's records, sifted in Python: over any log, with any sizes of replies and scans."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.views.reading import Client
from log.transaction_world import COMPACTED, TransactionWorld
from respool.broker.views.batch_filter import ViewCondition
from respool.broker.views.filtered_read import FilteredRead, FilteredSource
from respool.broker.views.scan_pass import ScanPass
from respool.broker.views.verdict_cache import CacheScope, VerdictCache
from respool.log.partition_log import ReadSpec
from respool.log.tag_indexing import TagTools
from respool.model.conditions.clauses import KeyIn
from respool.model.ids import Offset
from respool.model.where import Where
from respool.ports.disk import NotCached
from respool.records.batch import Codec, RecordBatch
from respool.records.plain_scan import PlainScanner
from respool.records.record import read_records
from respool.records.validate import walk_batches
from support.inline_offload import InlineOffload

EXAMPLES = 5_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 150
KEYS = "abcd"
SECRET = bytes(range(16))
TOPIC_ID = UUID(int=7)


class Write(NamedTuple):
    producer: int
    keys: list[str]
    size: int
    codec: Codec
    transactional: bool


class End(NamedTuple):
    producer: int
    is_commit: bool


class Read(NamedTuple):
    """Read on from the first offset, or from one inside the log."""

    keys: tuple[str, ...]
    committed: bool
    begin: float
    bytes_max: int
    scan_bytes_max: int
    quickly: bool


class Truncate(NamedTuple):
    batches: int


reads = st.builds(
    Read,
    # Few, so that the cache has what was found for another reader.
    st.sampled_from([("a",), ("a", "b"), ("b", "c", "d")]),
    st.booleans(),
    st.sampled_from([0.0, 0.0, 0.3, 0.7]),
    st.sampled_from([1, 200, 1_000, 10**6]),
    st.sampled_from([1_024, 3_000, 10**6]),
    st.booleans(),
)
writes = st.builds(
    Write,
    st.integers(-1, 2),
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=5),
    st.sampled_from([1, 1, 300]),
    st.sampled_from(list(Codec)),
    st.booleans(),
)
# Producers of transactions are a few and write little, so that many transactions end, and many overlap.
transactional_writes = st.builds(
    Write,
    st.integers(0, 1),
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=3),
    st.just(1),
    st.sampled_from([Codec.NONE, Codec.LZ4]),
    st.just(True),
)
ends = st.builds(End, st.integers(0, 1), st.booleans())
steps = st.lists(
    st.one_of(
        writes,
        writes,
        transactional_writes,
        transactional_writes,
        ends,
        ends,
        reads,
        st.builds(Truncate, st.integers(1, 4)),
        st.sampled_from(["sync", "sync", "sync", "roll", "compact"]),
        st.sampled_from(["compact all", "index", "index a slice"]),
    ),
    min_size=10,
    max_size=50,
)


class ViewWorld:
    """A log, the cache of its broker, and both kinds of readers."""

    def __init__(self) -> None:
        self.world = TransactionWorld.new(config=COMPACTED)
        self.passed_bytes = 0
        self.cache = VerdictCache(bytes_max=20_000, guard=InlineOffload().lock())

    def do(self, step: object) -> None:
        world = self.world
        match step:
            case Write():
                transactional = step.transactional
                if step.producer in world.open_producers():
                    transactional = True
                world.write(
                    step.producer,
                    *step.keys,
                    size=step.size,
                    codec=step.codec,
                    transactional=transactional,
                )
            case End() if step.producer in world.open_producers():
                world.end(step.producer, is_commit=step.is_commit)
            case Truncate():
                ends = [
                    Offset(one.next_offset)
                    for one in world.history
                    if one.next_offset >= world.high_watermark
                ]
                if len(ends) > step.batches:
                    world.truncate_to(ends[-1 - step.batches])
            case Read():
                self.read(step)
            case "sync":
                world.sync()
            case "roll":
                world.roll()
            case "index" | "index a slice":
                self.index(slices=1_000 if step == "index" else 1)
            case "compact" | "compact all":
                if step == "compact all":
                    world.sync()
                    world.roll()
                world.compact()
                world.delete_removed()

    def index(self, *, slices: int) -> None:
        tools = TagTools(scanner=PlainScanner(), secret=SECRET, slice_bytes=500)
        indexing = self.world.log.index_tags([None, b"tag"], tools)
        for _ in range(slices):
            if not indexing.run():
                break
            if indexing.is_save_due:
                indexing.save()

    def end(self, *, committed: bool) -> Offset:
        return self.world.last_stable_offset if committed else self.world.high_watermark

    def read(self, step: Read) -> None:
        end = self.end(committed=step.committed)
        begin = int(end * step.begin)
        client = Client(begin)
        # Every reply moves the reader, so it reaches the end.
        while client.position < end:
            before = client.position
            data = self.reply(step, Offset(client.position), end)
            client.take(data)
            assert client.position > before, "an empty reply before the end"
            assert client.position <= end, "beyond what this reader may see"
        assert [(one.offset, one.key, one.value) for one in client.records] == [
            (offset, key, value)
            for offset, key, value in self.parent_records(begin, end, committed=step.committed)
            if key.decode() in step.keys
        ]
        # At the end there is nothing.
        assert self.reply(step, end, end) == b""

    def reply(self, step: Read, offset: Offset, end: Offset) -> bytes:
        where = Where((KeyIn(tuple(key.encode() for key in step.keys)),))
        condition = ViewCondition(where, PlainScanner(), secret=SECRET)
        source = FilteredSource(
            self.world.log,
            CacheScope(TOPIC_ID, 0, condition.text),
            condition,
            read_committed=step.committed,
            takes_zstd=True,
        )
        spec = ReadSpec(offset, max_offset=end, bytes_max=step.bytes_max)
        records = None
        if step.quickly:
            condition.release(PlainScanner().matcher(where))
            scan = ScanPass(bytes_max=step.scan_bytes_max, is_quick=True)
            with suppress(NotCached):
                records = FilteredRead(
                    source, spec._replace(cached_only=True), scan, self.cache
                ).run()
        if records is None:
            scan = ScanPass(bytes_max=step.scan_bytes_max, is_quick=False)
            records = FilteredRead(source, spec, scan, self.cache).run()
        data = b"".join(records.buffers)
        assert len(records) == len(data)
        assert records.is_idle == (
            all(header.is_control for _, header in walk_batches(data))
            and (offset == end or _end_of(data) == end)
        )
        self.passed_bytes += scan.skipped_bytes
        return data

    def parent_records(
        self, begin: int, end: Offset, *, committed: bool
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """What a reader of the parent gets."""
        shown = (
            {record[0] for record in self.world.committed(Offset(0), end)} if committed else set()
        )
        log = self.world.log
        offset = Offset(begin)
        while offset < end:
            data = bytes(log.read(ReadSpec(offset, max_offset=end, bytes_max=10**6)))
            if not data:
                return
            for position, header in walk_batches(data):
                batch = RecordBatch(header, data[position : position + header.size])
                offset = header.next_offset
                if header.is_control or not header.record_count:
                    continue
                for one in read_records(batch, limit=10**6):
                    if one.offset >= begin and (not committed or one.offset in shown):
                        yield int(one.offset), one.key or b"", one.value or b""


def _end_of(data: bytes) -> int:
    return max((header.next_offset for _, header in walk_batches(data)), default=-1)


@given(steps=steps, last=st.lists(reads, min_size=2, max_size=4))
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_reader_of_a_view_sees_the_parents_records_sifted(
    steps: list[object], last: list[Read]
) -> None:
    views = ViewWorld()
    for step in steps:
        views.do(step)
    for way in ("sync", "compact all", "index"):
        views.do(way)
        for step in last:
            views.do(step)
