"""Other processes of this machine find the bytes of a log where its broker says they are."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.drivers.local_disk import LocalDisk
from respool.drivers.threaded_local_reader import ThreadedLocalReader
from respool.model.file_range import FileRange, LocalReadFailed


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(str(tmp_path / "data"))


@pytest.fixture
def local_reader() -> Iterator[ThreadedLocalReader]:
    found = ThreadedLocalReader("here")
    yield found
    found.close()


def read(local_reader: ThreadedLocalReader, *places: FileRange) -> list[bytes]:
    async def story() -> list[memoryview]:
        return await asyncio.gather(*map(local_reader.read, places))

    return list(map(bytes, asyncio.run(story())))


def test_the_bytes_are_where_they_are_said_to_be(
    disk: LocalDisk, local_reader: ThreadedLocalReader
) -> None:
    disk.make_folder("rides-0")
    log = disk.open_log(f"rides-0/{0:020d}.log")
    log.append([b"0123456789"])
    assert read(local_reader, log.file_range(2, 5)) == [b"23456"]
    # Also what was appended since, and several at once.
    log.append([b"abc" * 100_000])
    places = [log.file_range(position, 100_000) for position in (8, 0, 200_000)]
    whole = b"0123456789" + b"abc" * 100_000
    assert read(local_reader, *places) == [
        whole[file_range.position : file_range.position + file_range.size] for file_range in places
    ]


def test_what_has_lost_its_name_is_not_to_be_had(
    disk: LocalDisk, local_reader: ThreadedLocalReader
) -> None:
    disk.make_folder("rides-0")
    log = disk.open_log(f"rides-0/{0:020d}.log")
    log.append([b"0123456789"])
    disk.rename("rides-0", "gone")
    with pytest.raises(LocalReadFailed):
        read(local_reader, log.file_range(2, 5))


def test_nobody_changes_what_was_read(disk: LocalDisk, local_reader: ThreadedLocalReader) -> None:
    log = disk.open_log(f"{0:020d}.log")
    log.append([b"0123456789"])

    async def story() -> memoryview:
        return await local_reader.read(log.file_range(0, 10))

    assert asyncio.run(story()).readonly
