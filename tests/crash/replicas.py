"""What the replicas of a partition have on their disks, byte for byte; for brokers that were stopped cleanly."""

from collections.abc import Mapping
from pathlib import Path

from support.message import Place
from support.stored import stored_batches

HIGH_WATERMARKS = "replication-offset-checkpoint"


def check_identical(folders: Mapping[int, Path]) -> int:
    """Every partition is the same on all brokers up to its high watermark; return how many there are.

    Raises AssertionError.
    """
    marks = {number: _high_watermarks(folder) for number, folder in folders.items()}
    places = sorted(set().union(*marks.values()))
    for place in places:
        # The last leader's; what others know of it may be older.
        end = max(one.get(place, 0) for one in marks.values())
        copies = {
            number: _bytes_below(folders[number], place, end)
            for number, one in marks.items()
            if place in one
        }
        sizes = {number: len(one) for number, one in copies.items()}
        assert len(set(copies.values())) == 1, f"{place} differs below offset {end}: {sizes} bytes"
    return len(places)


def _high_watermarks(folder: Path) -> dict[Place, int]:
    """Kafka's text: a version, a count, and a line `topic partition offset` for each."""
    lines = (folder / HIGH_WATERMARKS).read_text().splitlines()[2:]
    fields = [line.rsplit(" ", 2) for line in lines if len(line.split()) == 3]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in fields}


def _bytes_below(folder: Path, place: Place, end: int) -> bytes:
    found = []
    for batch in stored_batches(folder, place):
        if batch.base_offset < end:
            with batch.path.open("rb") as file:
                file.seek(batch.position)
                found.append(file.read(batch.size))
    return b"".join(found)
