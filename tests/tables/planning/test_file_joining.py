"""Which files are joined, and which versions are forgotten."""

from hypothesis import given
from hypothesis import strategies as st

from respool.tables.planning.data_file_names import FileName, parse_path
from respool.tables.planning.expiring import KnownVersion, expired
from respool.tables.planning.file_joining import SizedFile, plan_joins


def file(
    first: int, end: int, size: int = 10, *, partition: int = 0, day: str | None = None
) -> SizedFile:
    name = FileName(partition=partition, first=first, next=end, random="0123456789abcdef", day=day)
    return SizedFile(name=name, size=size)


def joined(files: list[SizedFile]) -> list[list[int]]:
    groups = plan_joins(files, small_bytes=64, joined_bytes_max=100, files_min=2)
    return [[one.name.first for one in group] for group in groups]


def test_neighbours_of_one_partition_and_day_are_joined_in_order() -> None:
    files = [
        file(5, 9),
        file(0, 5),
        file(9, 12, partition=1),
        file(12, 20, partition=1),
        file(9, 10),
    ]
    assert joined(files) == [[0, 5, 9], [9, 12]]
    assert joined([file(0, 5, day="2026-01-01"), file(0, 5, day="2026-01-02")]) == []


def test_a_large_file_is_not_rewritten_and_ends_a_group() -> None:
    assert joined([file(0, 1), file(1, 2), file(2, 3, 64), file(3, 4), file(4, 5)]) == [
        [0, 1],
        [3, 4],
    ]
    assert joined([file(number, number + 1, 40) for number in range(4)]) == [[0, 1], [2, 3]]


@given(st.lists(st.integers(1, 80), max_size=30))
def test_joining_again_and_again_ends(sizes: list[int]) -> None:
    files = [file(number, number + 1, size) for number, size in enumerate(sizes)]
    for _ in range(len(sizes) + 1):
        groups = plan_joins(files, small_bytes=64, joined_bytes_max=100, files_min=2)
        if not groups:
            return
        for group in groups:
            files = [one for one in files if one not in group]
            files.append(
                file(group[0].name.first, group[-1].name.next, sum(one.size for one in group))
            )
    raise AssertionError("files are joined for ever")


def test_a_file_name_says_what_is_in_the_file() -> None:
    name = file(5, 9, day="2026-01-31").name
    assert parse_path(name.path) == name
    assert parse_path(f"s3://lake/rides/{name.path}") == name
    assert parse_path("data/part-00000.parquet") is None


def test_versions_are_forgotten_by_number_and_age_but_never_the_newest() -> None:
    versions = [KnownVersion(id=number, made_ms=number * 1000) for number in range(6)]
    assert expired(versions, now_ms=6000, kept=4, kept_ms=100_000) == [0, 1]
    assert expired(versions, now_ms=9000, kept=100, kept_ms=5500) == [0, 1, 2, 3]
    assert expired(versions, now_ms=9_000_000, kept=1, kept_ms=1) == [0, 1, 2, 3, 4]
    assert expired([], now_ms=1) == []
