"""From header to header, and no further than the headers go."""

from random import Random

import pytest

from log.log_world import batch_of
from respool.log.batch_walk import WINDOW_BYTES, walk_headers
from respool.model.errors import SegmentCorrupt
from respool.ports.disk import NotCached
from respool.sim.disk.simulated_disk import SimDisk
from respool.sim.disk.simulated_files import SimLogFile


def file_of(*sizes: int, tail: bytes = b"") -> tuple[SimDisk, SimLogFile, list[int]]:
    """A file of batches with values of these sizes, and where each begins."""
    disk = SimDisk(Random(1))
    file = disk.open_log("a.log")
    starts = []
    for size in sizes:
        starts.append(file.size)
        file.append([batch_of(1, value=b"v" * size).data])
    file.append([tail])
    return disk, file, starts


def test_every_batch_is_found_however_large() -> None:
    _, file, starts = file_of(0, 10, WINDOW_BYTES, 3, WINDOW_BYTES - 100, 40_000, 1)
    found = list(walk_headers(file, 0, file.size))
    assert [batch.position for batch in found] == starts
    assert found[-1].end == file.size


def test_small_batches_share_a_read_and_large_ones_are_not_read() -> None:
    disk, file, _ = file_of(*[1] * 50)
    list(walk_headers(file, 0, file.size))
    assert disk.counters.reads <= 2
    disk, file, _ = file_of(*[100_000] * 5)
    list(walk_headers(file, 0, file.size))
    assert disk.counters.bytes_read <= 5 * WINDOW_BYTES


def test_it_may_begin_and_end_at_any_batch() -> None:
    _, file, starts = file_of(5, 6, 7, 8)
    assert [b.position for b in walk_headers(file, starts[1], starts[3])] == starts[1:3]
    assert list(walk_headers(file, starts[2], starts[2])) == []


def test_a_wrong_beginning_is_noticed() -> None:
    _, file, starts = file_of(500, 500)
    with pytest.raises(SegmentCorrupt, match="no batch at byte 3 "):
        list(walk_headers(file, starts[0] + 3, file.size))


def test_an_end_within_a_batch_is_noticed() -> None:
    _, file, starts = file_of(500, 500)
    with pytest.raises(SegmentCorrupt, match=f"no batch at byte {starts[1]} "):
        list(walk_headers(file, 0, file.size - 1))
    _, file, _ = file_of(5, tail=b"short")
    with pytest.raises(SegmentCorrupt, match="5 bytes at byte"):
        list(walk_headers(file, 0, file.size))


def test_cold_headers_are_not_waited_for() -> None:
    disk, file, starts = file_of(9000, 9000)
    disk.make_cold("a.log", starts[1])
    walk = walk_headers(file, 0, file.size, cached_only=True)
    assert next(walk).position == 0
    with pytest.raises(NotCached):
        next(walk)
