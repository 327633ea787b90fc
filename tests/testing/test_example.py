"""The example project, tested as a user would: its own pytest, in its own folder, with an installed Respool."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fare_calculator"


@pytest.mark.clients
def test_the_fare_calculators_own_tests_pass(tmp_path: Path) -> None:
    project = shutil.copytree(
        EXAMPLE, tmp_path / "fare_calculator", ignore=shutil.ignore_patterns("__pycache__", ".*")
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 passed" in done.stdout
