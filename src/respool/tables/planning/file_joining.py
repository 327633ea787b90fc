"""Decides which small files are joined. Pure.

Only adjacent files are joined: those of one partition (and day) with consecutive ranges. So a joined file again has
the rows of one range, in order, and its name says which.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from respool.tables.planning.data_file_names import FileName

MIB = 1024 * 1024
SMALL_BYTES = 64 * MIB
JOINED_BYTES_MAX = 512 * MIB
# Joining tiny files in pairs would rewrite the same rows many times.
FILES_MIN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SizedFile:
    name: FileName
    size: int


def plan_joins(
    files: Iterable[SizedFile],
    *,
    small_bytes: int = SMALL_BYTES,
    joined_bytes_max: int = JOINED_BYTES_MAX,
    files_min: int = FILES_MIN,
) -> list[tuple[SizedFile, ...]]:
    """Return the groups to join, each in the order of its offsets."""
    by_place: defaultdict[tuple[int, str], list[SizedFile]] = defaultdict(list)
    for one in files:
        by_place[one.name.partition, one.name.day or ""].append(one)
    groups = []
    for _place, found in sorted(by_place.items()):
        groups += _runs(
            sorted(found, key=lambda one: (one.name.first, one.name.next)),
            small_bytes,
            joined_bytes_max,
            files_min,
        )
    return groups


def _runs(
    files: Sequence[SizedFile], small_bytes: int, joined_bytes_max: int, files_min: int
) -> list[tuple[SizedFile, ...]]:
    runs: list[tuple[SizedFile, ...]] = []
    run: list[SizedFile] = []
    for one in [*files, None]:
        fits = (
            one is not None
            and one.size < small_bytes
            and sum(each.size for each in run) + one.size <= joined_bytes_max
            # Days divide a range: its rows of another day are in another file, so there may be a hole, but no overlap.
            and (not run or run[-1].name.next <= one.name.first)
        )
        if not fits:
            if len(run) >= files_min:
                runs.append(tuple(run))
            run = []
        if one is not None and one.size < small_bytes:
            run.append(one)
    return runs
