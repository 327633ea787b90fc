"""A reader that sifts records itself gets all that match, over any log, and no batch that the index excludes."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.views.test_view_model import SECRET, Read, ViewWorld, reads, steps
from columnar.columns_reference import rows_of
from respool.broker.fetch.partition_read import aborted_among
from respool.broker.views.candidate_read import CandidateRead
from respool.broker.views.scan_pass import ScanPass
from respool.columnar.clause_tables import clause_tables
from respool.columnar.decode_columns import decode
from respool.log.partition_log import ReadSpec
from respool.log.tag_query import TagQuery
from respool.model.conditions.clauses import KeyIn
from respool.model.ids import Offset
from respool.model.where import Where
from respool.records.batch import Codec, RecordBatch
from respool.records.markers import read_marker
from respool.records.record import read_records
from respool.records.validate import walk_batches

EXAMPLES = 5_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 60


def where_of(*keys: str) -> Where:
    return Where((KeyIn(tuple(sorted(key.encode() for key in keys))),))


class CandidateWorld(ViewWorld):
    def __init__(self) -> None:
        super().__init__()
        # Everything was indexed, and nothing has changed since.
        self.is_indexed = False

    def do(self, step: object) -> None:
        super().do(step)
        if not isinstance(step, Read):
            self.is_indexed = step == "index"

    def read(self, step: Read) -> None:
        end = self.end(committed=step.committed)
        begin = position = int(end * step.begin)
        found: list[tuple[int, bytes, bytes]] = []
        while position < end:
            data, aborted = self.answer(step, Offset(position), end)
            decoded = decode(
                data,
                begin=position,
                columns=("offset", "key", "value"),
                clauses=clause_tables(where_of(*step.keys)),
                aborted=aborted or (),
            )
            assert position < decoded.next_offset <= end
            position = decoded.next_offset
            found += [(row["offset"], row["key"], row["value"]) for row in rows_of(decoded)]
        assert found == [
            (offset, key, value)
            for offset, key, value in self.parent_records(begin, end, committed=step.committed)
            if key.decode() in step.keys
        ]

    def answer(
        self, step: Read, offset: Offset, end: Offset
    ) -> tuple[bytes, list[tuple[int, int]]]:
        log = self.world.log
        spec = ReadSpec(offset, max_offset=end, bytes_max=step.bytes_max)
        query = TagQuery.of(where_of(*step.keys), SECRET)
        assert query is not None
        scan = ScanPass(bytes_max=10**9, is_quick=False)
        read = CandidateRead(log, query, spec, scan, read_committed=step.committed)
        # Looking for something to lend changes nothing.
        stretch = read.find_stretch(bytes_min=1)
        records = read.run()
        if records is None:
            data = bytes(log.read(spec))
            assert stretch is None
            assert scan.skipped_bytes == 0
            aborted = aborted_among(log, offset, data, cached_only=False) if step.committed else []
            return data, aborted
        data = b"".join(records.buffers)
        assert len(records) == len(data)
        assert not records.is_idle
        self.passed_bytes += scan.skipped_bytes
        self.check(data, step, is_partial=not self.is_indexed)
        if stretch is not None:
            assert offset <= stretch.begin < stretch.end <= end
        return data, []

    def check(self, data: bytes, step: Read, *, is_partial: bool) -> None:
        """All batches are whole; a marker of nobody is the last one; others match, if everything is indexed."""
        end = 0
        for begin, header in walk_batches(data):
            assert begin == end
            end = begin + header.size
            batch = RecordBatch(header, data[begin:end])
            if header.is_control and header.producer_id < 0:
                assert read_marker(batch) is not None
                assert end == len(data)
            elif not is_partial:
                assert any(
                    (one.key or b"").decode() in step.keys
                    for one in read_records(batch, limit=10**6)
                )
        assert end == len(data)


@given(steps=steps, last=st.lists(reads, min_size=2, max_size=4))
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_reader_that_sifts_gets_all_that_matches(steps: list[object], last: list[Read]) -> None:
    world = CandidateWorld()
    for step in steps:
        world.do(step)
    for way in ("sync", "compact all", "index"):
        world.do(way)
        for step in last:
            world.do(step)


def indexed_world(*batches: str) -> CandidateWorld:
    """A batch of one key each, all indexed."""
    world = CandidateWorld()
    for key in batches:
        world.world.write(-1, key)
    world.do("sync")
    world.do("index")
    return world


def offsets_sent(
    world: CandidateWorld, *keys: str, offset: int = 0, bytes_max: int = 10**6
) -> list[int]:
    step = Read(keys, False, 0.0, bytes_max, 10**6, False)
    data, _ = world.answer(step, Offset(offset), world.end(committed=False))
    return [
        int(header.base_offset) if not header.is_control else -int(header.base_offset)
        for _, header in walk_batches(data)
    ]


def test_what_cannot_match_is_passed_over_and_the_end_is_a_marker() -> None:
    world = indexed_world(*"abbabbb")
    # Batches at 0 and 3, and a marker at 6.
    assert offsets_sent(world, "a") == [0, 3, -6]
    assert offsets_sent(world, "a", offset=1) == [3, -6]
    assert offsets_sent(world, "a", offset=4) == [-6]
    assert offsets_sent(world, "c") == [-6]
    assert offsets_sent(world, "b") == [1, 2, 4, 5, 6]
    assert world.passed_bytes > 0


def test_a_reply_without_room_ends_before_the_next_batch_that_may_match() -> None:
    world = indexed_world(*"abbabba")
    assert offsets_sent(world, "a", bytes_max=1) == [0]
    assert offsets_sent(world, "a", offset=1, bytes_max=1) == [3]
    batch_bytes = 70
    assert offsets_sent(world, "a", bytes_max=3 * batch_bytes) in ([0, 3], [0, 3, -5])


@pytest.mark.parametrize("committed", [True, False])
def test_the_marker_of_an_abort_may_be_passed_over(committed: bool) -> None:
    """Without it, a reader that is told of the abort would drop what its producer committed later."""
    world = CandidateWorld()
    world.world.write(7, "a", codec=Codec.NONE)
    world.world.end(7, is_commit=False)
    world.world.write(7, "a")
    world.world.end(7, is_commit=True)
    world.do("sync")
    world.do("index")
    world.read(Read(("a",), committed, 0.0, 10**6, 10**6, False))
    step = Read(("a",), committed, 0.0, 10**6, 10**6, False)
    data, aborted = world.answer(step, Offset(0), world.end(committed=committed))
    assert aborted == []
    sent = [int(one.base_offset) for _, one in walk_batches(data) if not one.is_control]
    assert sent == ([2] if committed else [0, 2])


def test_where_nothing_is_indexed_everything_may_match() -> None:
    world = CandidateWorld()
    world.world.write(-1, "b")
    world.do("sync")
    assert offsets_sent(world, "a") == [0]
    assert world.passed_bytes == 0
