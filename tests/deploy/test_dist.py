"""`make dist`: the same commit gives the same files, to the byte."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the time of the archives is the commit's")
def test_wheel_and_sdist_are_built_reproducibly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.build_dist", str(tmp_path / "dist")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.suffix for path in (tmp_path / "dist").iterdir()) == [".gz", ".whl"]
