"""Every path that a page names exists, and ARCHITECTURE.md has every package."""

import re
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


def test_every_path_of_the_map_exists() -> None:
    """`broker/partitions/flusher.py` is relative to src/respool/, all else to the repository."""
    missing = [path for path in _paths(ROOT / "ARCHITECTURE.md") if not _exists(path)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    modules = [path for path in _paths(page) if path.endswith(".py")]
    assert [path for path in modules if not _exists(path)] == []


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


def test_the_map_is_read_as_paths() -> None:
    assert len(_paths(ROOT / "ARCHITECTURE.md")) > 50


def _paths(page: Path) -> list[str]:
    return [found.group(1) for found in _PATH.finditer(page.read_text())]


def _exists(path: str) -> bool:
    return any((folder / path).exists() for folder in (SOURCE, ROOT, SOURCE.parent))
