"""Tag indexes over the life of a log: whatever happens to it, a search passes over nothing that it looks for."""

import os
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.transaction_world import COMPACTED, FOLDER, TransactionWorld
from respool.log.partition_log import ReadSpec
from respool.log.tag_indexing import TagTools
from respool.log.tag_query import TagName, TagQuery
from respool.log.tagged_read import TagCursor
from respool.model.errors import SegmentCorrupt
from respool.model.ids import Offset
from respool.model.where import parse_where
from respool.records.batch import HEADER_BYTES, Codec, RecordBatch
from respool.records.plain_scan import PlainScanner
from respool.records.record import read_records
from respool.records.validate import walk_batches

EXAMPLES = 5_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 100
KEYS = "abcdef"
SECRET = bytes(range(16))
ALL = 10**9


class Write(NamedTuple):
    producer: int
    keys: list[str]
    size: int
    codec: Codec


steps = st.lists(
    st.one_of(
        st.builds(
            Write,
            st.integers(-1, 1),
            # Few keys in a batch, so that a search passes over most.
            st.lists(st.sampled_from(KEYS), min_size=1, max_size=2),
            st.sampled_from([1, 300]),
            st.sampled_from([Codec.NONE, Codec.LZ4]),
        ),
        st.sampled_from(
            [
                "write more", "write more", "end", "sync", "roll", "index", "index", "index a slice",
                "truncate", "compact", "restart", "kill", "crash", "retention",
            ]
        ),
    ),
    min_size=8,
    max_size=40,
)  # fmt: skip


class TaggedLog:
    def __init__(self) -> None:
        self.world = TransactionWorld.new(config=COMPACTED)
        self.passed_bytes = 0

    def do(self, step: object) -> None:
        world = self.world
        match step:
            case Write():
                world.write(step.producer, *step.keys, size=step.size, codec=step.codec)
            case "write more":
                for key in KEYS:
                    world.write(-1, key, size=100)
            case "end":
                for producer in world.open_producers():
                    world.end(producer, is_commit=producer == 0)
            case "truncate":
                ends = [
                    one.next_offset
                    for one in world.history
                    if one.next_offset >= world.high_watermark
                ]
                if ends:
                    world.truncate_to(Offset(ends[len(ends) // 2]))
            case "index" | "index a slice":
                self.index(slices=1 if step == "index a slice" else ALL)
            case "compact":
                world.sync()
                world.compact()
            case "retention":
                world.apply_retention()
                world.delete_removed()
            case "restart":
                world.stop_and_start()
            case "kill":
                world.kill_and_start()
            case "crash":
                world.crash_and_start()
            case "sync":
                world.sync()
            case "roll":
                world.roll()
        self.check()

    def index(
        self, *, slices: int = ALL, names: tuple[TagName, ...] = (None,), secret: bytes = SECRET
    ) -> None:
        tools = TagTools(scanner=PlainScanner(), secret=secret, slice_bytes=400)
        indexing = self.world.log.index_tags(names, tools)
        while slices and indexing.run():
            slices -= 1
            if indexing.is_save_due:
                indexing.save()

    def check(self) -> None:
        for key in ("a", "f"):
            for begin, end in self.ranges():
                expected = [one for one in self.read(begin, end) if one[1] == key.encode()]
                found = [one for one in self.search(key, begin, end) if one[1] == key.encode()]
                assert found == expected

    def ranges(self) -> Iterator[tuple[Offset, Offset]]:
        log = self.world.log
        yield log.log_start, log.log_end
        middle = Offset((log.log_start + log.log_end) // 2)
        yield middle, max(middle, self.world.last_stable_offset)

    def read(self, offset: Offset, end: Offset) -> list[tuple[int, bytes | None]]:
        found: list[tuple[int, bytes | None]] = []
        while offset < end:
            data = self.world.log.read(ReadSpec(offset, max_offset=end, bytes_max=700))
            if not data:
                break
            offset = add_records(found, data, offset)
        return found

    def search(
        self, key: str, offset: Offset, end: Offset, *, secret: bytes = SECRET
    ) -> list[tuple[int, bytes | None]]:
        log = self.world.log
        query = TagQuery.of(parse_where(f"key = '{key}'"), secret)
        assert query is not None
        cursor = TagCursor(query)
        found: list[tuple[int, bytes | None]] = []
        while offset < end:
            spec = ReadSpec(offset, max_offset=end, bytes_max=700)
            tagged = log.read_tagged(cursor, spec)
            if tagged is None:
                data = log.read(spec)
                if not data:
                    break
                offset = add_records(found, data, offset)
                continue
            assert offset <= tagged.passed_to <= tagged.end <= end
            assert tagged.end > offset
            self.passed_bytes += tagged.passed_bytes
            if tagged.last_passed is not None:
                assert tagged.last_passed.next_offset <= tagged.passed_to
            add_records(found, tagged.data, offset)
            offset = tagged.end
        return found

    def files(self) -> list[str]:
        return [name for name in self.world.disk.list_folder(FOLDER) if name.endswith(".tagindex")]

    def passed(self, key: str) -> int:
        """How many bytes a search passes over."""
        self.passed_bytes = 0
        self.search(key, self.world.log.log_start, self.world.log.log_end)
        return self.passed_bytes


def add_records(
    found: list[tuple[int, bytes | None]], data: bytes | memoryview, offset: Offset
) -> Offset:
    """Return the offset after the last whole batch."""
    end = offset
    for position, header in walk_batches(bytes(data)):
        end = header.next_offset
        if header.record_count and not header.is_control:
            batch = RecordBatch(header, bytes(data[position : position + header.size]))
            records = read_records(batch, limit=10**6)
            found += [(int(one.offset), one.key) for one in records if one.offset >= offset]
    return end


@given(steps=steps)
@settings(max_examples=EXAMPLES, deadline=None)
def test_a_search_finds_all_that_a_reader_of_everything_would(steps: list[object]) -> None:
    tagged = TaggedLog()
    for step in steps:
        tagged.do(step)


@pytest.fixture
def tagged() -> TaggedLog:
    """Several finished segments and an active one, all indexed."""
    tagged = TaggedLog()
    for _ in range(5):
        tagged.do("write more")
    tagged.do("sync")
    tagged.index()
    assert tagged.world.log.segment_count > 3
    return tagged


def test_a_finished_segment_has_a_file_and_the_active_one_is_indexed_in_memory(
    tagged: TaggedLog,
) -> None:
    world = tagged.world
    assert len(tagged.files()) == world.log.segment_count - 1
    size = world.log.size_bytes
    assert tagged.passed("nothing") == size
    assert 0.7 * size < tagged.passed("a") < size
    world.stop_and_start()
    # The file is there after a restart; what was in memory is made anew.
    active = world.log._parts.segments.active.size
    assert tagged.passed("nothing") == world.log.size_bytes - active
    tagged.index()
    assert tagged.passed("nothing") == world.log.size_bytes


def test_a_search_that_goes_back_finds_what_it_went_past(tagged: TaggedLog) -> None:
    log = tagged.world.log
    query = TagQuery.of(parse_where("key = 'b'"), SECRET)
    assert query is not None
    cursor = TagCursor(query)

    def find(offset: int) -> int:
        spec = ReadSpec(Offset(offset), max_offset=log.log_end, bytes_max=1)
        found = log.read_tagged(cursor, spec, locate_only=True)
        assert found is not None
        return int(found.passed_to)

    forward = [find(offset) for offset in range(log.log_start, log.log_end)]
    assert len(set(forward)) > 3
    back = [find(offset) for offset in reversed(range(log.log_start, log.log_end))]
    assert back == forward[::-1]


def test_batches_are_located_without_being_read(tagged: TaggedLog) -> None:
    log = tagged.world.log
    query = TagQuery.of(parse_where("key in ('b', 'c')"), SECRET)
    assert query is not None
    for offset in range(log.log_start, log.log_end):
        spec = ReadSpec(Offset(offset), max_offset=log.log_end, bytes_max=700)
        found = log.read_tagged(TagCursor(query), spec)
        assert found is not None
        assert found.size == len(found.data)
        located = log.read_tagged(TagCursor(query), spec, locate_only=True)
        assert located == found._replace(data=b"")


def test_only_what_is_durable_has_a_file(tagged: TaggedLog) -> None:
    log = tagged.world.log
    tagged.do("write more")
    tagged.do("write more")
    tagged.index()
    bases = [segment.base_offset for segment in log._parts.segments.all]
    durable = [base for base, end in pairwise(bases) if end <= log.synced_end]
    assert len(durable) < log.segment_count - 2
    assert sorted(int(name[:20]) for name in tagged.files()) == durable
    assert tagged.passed("nothing") == log.size_bytes
    tagged.do("sync")
    tagged.index()
    assert len(tagged.files()) == log.segment_count - 1


@pytest.fixture
def follower() -> TaggedLog:
    """A finished segment with a file that is synced, but not committed: a follower may truncate it."""
    tagged = TaggedLog()
    world = tagged.world
    for key in "aaa":
        world.write(-1, key, size=200)
    world.roll()
    world.write(-1, "a", size=200)
    log = world.log
    pending = log.begin_sync()
    assert pending is not None
    pending.run()
    log.finish_sync(pending)
    tagged.index()
    assert len(tagged.files()) == 1
    return tagged


def test_the_index_of_a_segment_that_was_truncated_and_written_again_is_not_believed(
    follower: TaggedLog,
) -> None:
    """It has grown to the same size: only its bytes differ."""
    world = follower.world
    size = world.log._parts.segments.first.size
    world.truncate_to(Offset(2))
    assert follower.files() == []
    world.write(-1, "b", size=200)
    world.roll()
    assert world.log._parts.segments.first.size == size
    follower.check()
    assert follower.search("b", Offset(0), world.log.log_end)[-1] == (2, b"b")


def test_a_truncation_at_the_end_of_a_segment_keeps_its_index(follower: TaggedLog) -> None:
    world = follower.world
    world.truncate_to(Offset(3))
    assert len(follower.files()) == 1
    world.write(-1, "b", size=200)
    follower.check()
    assert follower.search("b", Offset(0), world.log.log_end)[-1] == (3, b"b")


@pytest.mark.parametrize("crash", [False, True])
def test_what_a_truncation_dropped_stays_dropped(follower: TaggedLog, crash: bool) -> None:
    world = follower.world
    world.truncate_to(Offset(2))
    if crash:
        world.crash_and_start()
    else:
        world.kill_and_start()
    assert follower.files() == []


def test_retention_removes_the_index_with_its_segment(tagged: TaggedLog) -> None:
    world = tagged.world
    before = tagged.files()
    world.delete_records(Offset(world.log.log_end - 1))
    tagged.do("retention")
    assert len(tagged.files()) == world.log.segment_count - 1 < len(before)


def test_compaction_replaces_segments_and_their_index(tagged: TaggedLog) -> None:
    tagged.do("compact")
    assert tagged.passed("nothing") < tagged.world.log.size_bytes
    tagged.check()
    tagged.index()
    tagged.check()
    assert tagged.passed("nothing") == tagged.world.log.size_bytes
    tagged.world.delete_removed()
    assert len(tagged.files()) == tagged.world.log.segment_count - 1


@pytest.mark.parametrize("damage", ["missing", "short", "broken", "of another segment"])
def test_an_index_that_cannot_be_used_is_made_anew(tagged: TaggedLog, damage: str) -> None:
    world = tagged.world
    first, second = (f"{FOLDER}/{name}" for name in sorted(tagged.files())[:2])
    data = world.disk.read_file(first)
    assert data is not None
    world.stop_and_start()
    match damage:
        case "missing":
            world.disk.delete(first)
        case "short":
            world.disk.replace_file(first, data[:-1])
        case "broken":
            world.disk.replace_file(first, data[:50] + b"\xff" + data[51:])
        case _:
            world.disk.replace_file(second, data)
    tagged.check()
    passed = tagged.passed("nothing")
    tagged.index()
    tagged.check()
    assert passed < tagged.passed("nothing") == world.log.size_bytes


def test_another_name_or_secret_makes_the_index_anew(tagged: TaggedLog) -> None:
    size = tagged.world.log.size_bytes
    tagged.index(names=(b"tag",))
    # It had no tags; now it has no keys.
    assert tagged.passed("nothing") == 0
    tagged.check()
    tagged.index(names=(None, b"tag"))
    assert tagged.passed("nothing") == size
    other = bytes(16)
    assert tagged.search("a", Offset(0), tagged.world.log.log_end, secret=other) != []
    tagged.index(names=(None,), secret=other)
    found = tagged.search("a", Offset(0), tagged.world.log.log_end, secret=other)
    assert [key for _, key in found].count(b"a") == 5


def test_the_index_of_the_last_segment_is_not_kept_over_a_restart(tagged: TaggedLog) -> None:
    """A power cut may take the segment after it; then it is written to."""
    world = tagged.world
    name = f"{FOLDER}/{world.log._parts.segments.active.base_offset:020d}.tagindex"
    world.stop_and_start()
    data = world.disk.read_file(f"{FOLDER}/{min(tagged.files())}")
    assert data is not None
    world.disk.replace_file(name, data)
    world.stop_and_start()
    assert not world.disk.exists(name)


@pytest.mark.parametrize("at", [8, HEADER_BYTES + 7], ids=["length", "records"])
def test_a_damaged_batch_is_never_indexed(at: int) -> None:
    """The index would hide its records for good; and a negative length led back, for ever."""
    tagged = TaggedLog()
    tagged.world.write(-1, "a", size=100)
    size = tagged.world.log.size_bytes
    for key in "fa":
        tagged.world.write(-1, key, size=100)
    path = f"{FOLDER}/{0:020d}.log"
    tagged.world.disk.corrupt(path, size + at, mask=0x80)
    with pytest.raises(SegmentCorrupt):
        tagged.index()
    assert tagged.files() == []
