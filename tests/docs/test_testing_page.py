"""The examples of docs/testing.md, run as they are written: each starts its own broker."""

import subprocess
import sys
from pathlib import Path

import pytest

from docs.runnable import Block, blocks

PYTEST, *EXAMPLES = sorted(blocks("docs/testing.md"), key=lambda block: block.kind != "pytest")

pytestmark = pytest.mark.clients


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.kind)
def test_an_example_does_what_it_says(example: Block, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example.text],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_fixtures_are_used_as_shown(tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(PYTEST.text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "3 passed" in done.stdout, done.stdout


def test_the_page_has_an_example_for_each_part() -> None:
    assert [example.kind for example in (PYTEST, *EXAMPLES)] == [
        "pytest",
        "first",
        "arguments",
        "retention",
        "faults",
        "crash",
    ]
