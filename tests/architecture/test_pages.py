"""Every path that a page names exists: ARCHITECTURE.md, CONTRIBUTING.md, the glossary, the ADRs and all other pages."""

import re
from pathlib import Path

import pytest

from architecture.tree import ROOT, SOURCE

PAGES = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

_PATH = re.compile(r"(?<![\w./<>-])((?:[a-z_]+/)+(?:[a-z_]+\.(?:py|md|toml)|(?=[\s`),;:]|$)))")
_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def test_every_path_of_the_map_exists() -> None:
    """`broker/partitions/flusher.py` is relative to src/respool/, all else to the repository."""
    missing = [path for path in _paths(ROOT / "ARCHITECTURE.md") if not _exists(path)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    modules = [path for path in _paths(page) if path.endswith(".py")]
    assert [path for path in modules if not _exists(path)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_to_another_page_leads_somewhere(page: Path) -> None:
    links = _LINK.findall(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_class_of_the_glossary_is_in_its_file() -> None:
    named = re.findall(r"`(\w+)` in `([\w/.]+)`", (ROOT / "docs" / "glossary.md").read_text())
    astray = [
        (name, file)
        for name, file in named
        if not re.search(rf"^(class|def) {name}\b", (SOURCE / file).read_text(), re.MULTILINE)
    ]
    assert named
    assert astray == []


def test_the_map_is_read_as_paths() -> None:
    assert len(_paths(ROOT / "ARCHITECTURE.md")) > 50


def _paths(page: Path) -> list[str]:
    return [found.group(1) for found in _PATH.finditer(page.read_text())]


def _exists(path: str) -> bool:
    return (SOURCE / path).exists() or (ROOT / path).exists() or (SOURCE.parent / path).exists()
