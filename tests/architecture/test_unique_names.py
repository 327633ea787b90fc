"""No two modules and no two classes share a name, so that a search for one finds one."""

from collections import defaultdict
from collections.abc import Iterable

import pytest

from architecture.tree import SOURCE, modules, outline

pytestmark = pytest.mark.xdist_group("architecture")

SAME_MODULES = {
    "errors": "the errors of each package, by which programs import them",
    "list_offsets": "handlers are named for their API; the client's half",
    "metadata": "handlers are named for their API; the client's half",
    "produce": "a handler named for its API; a command",
    "broker": "the broker; the broker of respool.testing, which stands for it",
    "cluster": "the cluster image; the client's connection to a cluster",
}
SAME_CLASSES = {
    "Broker": "the broker; the broker of respool.testing, which stands for it",
}


def test_no_two_modules_share_a_name() -> None:
    named = ((file.stem, file.relative_to(SOURCE).as_posix()) for file in modules().values())
    found = _shared(named)
    assert {name: found[name] for name in found.keys() - SAME_MODULES.keys()} == {}


def test_no_two_classes_share_a_name() -> None:
    found = _shared_classes()
    assert {name: found[name] for name in found.keys() - SAME_CLASSES.keys()} == {}


@pytest.mark.parametrize("name", SAME_CLASSES)
def test_every_exception_of_classes_is_needed(name: str) -> None:
    assert name in _shared_classes()


@pytest.mark.parametrize("name", SAME_MODULES)
def test_every_exception_of_modules_is_needed(name: str) -> None:
    assert [file.stem for file in modules().values()].count(name) > 1


def _shared_classes() -> dict[str, list[str]]:
    return _shared(
        (name, f"{file.relative_to(SOURCE).as_posix()}:{line}")
        for file in modules().values()
        for name, line in outline(file).classes
    )


def _shared(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for name, place in named:
        places[name].append(place)
    return {name: found for name, found in places.items() if len(found) > 1}
