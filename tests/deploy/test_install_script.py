"""The image's steps, run in an empty environment: containers cannot be run here."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(1200)
def test_the_image_s_steps_make_a_broker_that_starts(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    # What .dockerignore lets into the build.
    for name in ("src", "deploy/image", "requirements"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, checkout / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout / name)
    target = tmp_path / "opt" / "respool"
    clean = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    # As this machine's pip is set up.
    clean |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    done = subprocess.run(
        ["sh", ROOT / "deploy" / "image" / "install.sh", checkout, target],
        env=clean,
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("respool ")

    with subprocess.Popen(
        [target / "bin" / "respool", "serve", "--listen", "127.0.0.1:0"],
        cwd=tmp_path,
        env={**clean, "RESPOOL_DATA": str(tmp_path / "data")},
        stdout=subprocess.PIPE,
        text=True,
    ) as broker:
        try:
            assert broker.stdout is not None
            assert "127.0.0.1:" in broker.stdout.readline()
        finally:
            broker.terminate()
            assert broker.wait(60) == 0
