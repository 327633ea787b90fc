"""Which objects of a manifest must be read."""

import pytest

from archive.archived_log import KEYS
from respool.archive.manifest_chain import chain_of
from respool.model.archiving.archive_errors import ArchiveCorrupt


def keys(*entries: int, fulls: tuple[int, ...] = ()) -> list[str]:
    return [*map(KEYS.entry, entries), *map(KEYS.full, fulls)]


def test_all_entries_are_read_until_there_is_a_whole_manifest() -> None:
    assert chain_of([]) == (0, [])
    assert chain_of(keys(1, 2, 3)) == (0, [1, 2, 3])
    assert chain_of(keys(1, 2, 3, 4, fulls=(2,))) == (2, [3, 4])
    assert chain_of(keys(2, 3, fulls=(2,))) == (2, [3])


def test_names_that_are_not_the_manifests_are_ignored() -> None:
    assert chain_of([*keys(1), f"{KEYS.manifest}readme.txt", f"{KEYS.manifest}1.json"]) == (0, [1])


@pytest.mark.parametrize(("entries", "missing"), [((2, 3), 1), ((1, 3), 2), ((1, 2, 4, 5), 3)])
def test_a_gap_is_named(entries: tuple[int, ...], missing: int) -> None:
    with pytest.raises(ArchiveCorrupt, match=f"entry {missing} is missing"):
        chain_of(keys(*entries))
