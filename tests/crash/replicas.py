"""What the replicas of a partition have on their disks, byte for byte; for brokers that were stopped cleanly."""

from collections.abc import Mapping
from pathlib import Path

from support.message import Place
from support.stored import stored_batches

HIGH_WATERMARKS = "replication-offset-checkpoint"


def check_identical(folders: Mapping[int, Path]) -> int:
    """Every partition is the same on all brokers up to its high watermark; return how many there are.

    A broker that was stopped before others need not have what these wrote since, such as that a member of a group was
    silent for too long: it has all up to the high watermark that it knew, and nothing that others have not.

    Raises AssertionError.
    """
    marks = {number: _high_watermarks(folder) for number, folder in folders.items()}
    places = sorted(set().union(*marks.values()))
    for place in places:
        # The last leader's; what others know of it may be older.
        end = max(one.get(place, 0) for one in marks.values())
        copies = {
            number: _batches_below(folders[number], place, end)
            for number, one in marks.items()
            if place in one
        }
        longest = max(copies.values(), key=len)
        ends = {number: _end_of(one) for number, one in copies.items()}
        for number, copy in copies.items():
            assert copy == longest[: len(copy)], f"{place} differs below offset {end}: {ends}"
            known = marks[number][place]
            assert ends[number] >= known, f"{place} ends at {ends}, broker {number} knew {known}"
        assert max(ends.values()) >= end, f"{place} ends at {ends}, {end} is committed"
    return len(places)


def _high_watermarks(folder: Path) -> dict[Place, int]:
    """Kafka's text: a version, a count, and a line `topic partition offset` for each."""
    lines = (folder / HIGH_WATERMARKS).read_text().splitlines()[2:]
    fields = [line.rsplit(" ", 2) for line in lines if len(line.split()) == 3]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in fields}


def _batches_below(folder: Path, place: Place, end: int) -> list[tuple[int, bytes]]:
    """The offset after each batch, and its bytes."""
    found = []
    for batch in stored_batches(folder, place):
        if batch.base_offset < end:
            with batch.path.open("rb") as file:
                file.seek(batch.position)
                found.append((batch.base_offset + batch.record_count, file.read(batch.size)))
    return found


def _end_of(batches: list[tuple[int, bytes]]) -> int:
    return batches[-1][0] if batches else 0
