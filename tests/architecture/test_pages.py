"""Every path and import that a page names exists, and ARCHITECTURE.md has every package."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from architecture.tree import ROOT, SOURCE, packages_with_modules

PAGES = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

_PATH = re.compile(r"(?<![\w./<>-])((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|md|toml)|(?=[\s`),;:]|$)))")
# `from respool.client.arrow.errors import OutsideRetention, ReadError`
_IMPORT = re.compile(r"^\s*from (respool[\w.]*) import ([\w, ]+)$", re.MULTILINE)
# `NullNotAllowed`, `TimestampInvalid` (`respool.columnar.errors`)
_NAMES_WITH_MODULE = re.compile(r"((?:`\w+`, )*`\w+`) \(`(respool\.[\w.]+)`\)")
# `start.py`, without a package
_BARE_FILE = re.compile(r"(?<![\w./-])(\w+\.py)\b")
# `respool.table.errors` is a topic setting.
_ERRORS = re.compile(r"`(respool\.(?!table\.errors)[\w.]*errors)`")


def test_every_path_of_the_map_exists() -> None:
    """`broker/partitions/flusher.py` is relative to src/respool/, all else to the repository."""
    missing = [path for path in _paths(ROOT / "ARCHITECTURE.md") if not _exists(path)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    modules = [path for path in _paths(page) if path.endswith(".py")]
    assert [path for path in modules if not _exists(path)] == []


def test_every_import_that_a_page_shows_works() -> None:
    """Programs rely on these paths: a module may move only if its documented path still works."""
    shown = {one for page in PAGES for one in _documented_names(page.read_text())}
    assert ("respool.columnar.errors", "NullNotAllowed") in shown
    assert ("respool.client.arrow.errors", "OutsideRetention") in shown
    assert ("respool.testing", "Broker") in shown
    missing = [(path, name) for path, name in shown if not hasattr(import_module(path), name)]
    assert missing == []


def test_every_module_of_errors_that_a_page_names_can_be_imported() -> None:
    named = {one for page in PAGES for one in _ERRORS.findall(page.read_text())}
    assert {"respool.client.arrow.errors", "respool.client.messages.errors"} <= named
    for module in named:
        import_module(module)


def test_every_class_of_the_glossary_is_in_its_file() -> None:
    named = re.findall(r"`(\w+)` in `([\w/.]+)`", (ROOT / "docs" / "glossary.md").read_text())
    astray = [
        (name, file)
        for name, file in named
        if not re.search(rf"^(class|def) {name}\b", (SOURCE / file).read_text(), re.MULTILINE)
    ]
    assert named
    assert astray == []


def test_the_map_has_every_package() -> None:
    named = set(_paths(ROOT / "ARCHITECTURE.md"))
    packages = {f"{package.relative_to(SOURCE).as_posix()}/" for package in packages_with_modules()}
    assert packages - named == set()


def test_every_bare_file_of_the_map_is_in_the_package_of_its_row() -> None:
    """Elsewhere on that page, files are named with their packages."""
    astray = [
        line
        for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines()
        for file in _BARE_FILE.findall(line)
        if not any((SOURCE / package / file).exists() for package in _packages_of_row(line))
    ]
    assert astray == []


def _packages_of_row(line: str) -> list[str]:
    """| `rides/`, `pipeline/` | contents | -> rides/, pipeline/."""
    return re.findall(r"`([\w/]+/)`", line.split("|")[1]) if line.startswith("|") else []


def test_the_map_is_read_as_paths() -> None:
    assert len(_paths(ROOT / "ARCHITECTURE.md")) > 50


def _documented_names(text: str) -> set[tuple[str, str]]:
    """Module and name, from the examples and the prose of a page."""
    found = [
        *_IMPORT.findall(text),
        *((path, names) for names, path in _NAMES_WITH_MODULE.findall(text)),
    ]
    return {(path, name) for path, names in found for name in re.findall(r"\w+", names)}


def _paths(page: Path) -> list[str]:
    return [found.group(1) for found in _PATH.finditer(page.read_text())]


def _exists(path: str) -> bool:
    return any((folder / path).exists() for folder in (SOURCE, ROOT, SOURCE.parent))
