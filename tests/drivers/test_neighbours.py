"""Other processes of this machine find the bytes of a log where its broker says they are."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.drivers.local_disk import LocalDisk
from respool.drivers.neighbours import LocalNeighbours
from respool.model.file_place import FilePlace, NotLent


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(str(tmp_path / "data"))


@pytest.fixture
def neighbours() -> Iterator[LocalNeighbours]:
    found = LocalNeighbours("here")
    yield found
    found.close()


def read(neighbours: LocalNeighbours, *places: FilePlace) -> list[bytes]:
    async def story() -> list[memoryview]:
        return await asyncio.gather(*map(neighbours.read, places))

    return list(map(bytes, asyncio.run(story())))


def test_the_bytes_are_where_they_are_said_to_be(
    disk: LocalDisk, neighbours: LocalNeighbours
) -> None:
    disk.make_folder("rides-0")
    log = disk.open_log(f"rides-0/{0:020d}.log")
    log.append([b"0123456789"])
    assert read(neighbours, log.place(2, 5)) == [b"23456"]
    # Also what was appended since, and several at once.
    log.append([b"abc" * 100_000])
    places = [log.place(position, 100_000) for position in (8, 0, 200_000)]
    whole = b"0123456789" + b"abc" * 100_000
    assert read(neighbours, *places) == [
        whole[place.position : place.position + place.size] for place in places
    ]


def test_what_has_lost_its_name_is_not_to_be_had(
    disk: LocalDisk, neighbours: LocalNeighbours
) -> None:
    disk.make_folder("rides-0")
    log = disk.open_log(f"rides-0/{0:020d}.log")
    log.append([b"0123456789"])
    disk.rename("rides-0", "gone")
    with pytest.raises(NotLent):
        read(neighbours, log.place(2, 5))


def test_nobody_changes_what_was_read(disk: LocalDisk, neighbours: LocalNeighbours) -> None:
    log = disk.open_log(f"{0:020d}.log")
    log.append([b"0123456789"])

    async def story() -> memoryview:
        return await neighbours.read(log.place(0, 10))

    assert asyncio.run(story()).readonly
