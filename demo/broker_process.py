"""A broker of our own on a fresh data folder, for as long as the demo runs."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

OPTIONS = (
    *("--listen", "127.0.0.1:0", "--log-level", "warning"),
    # Nobody else will join: groups need not wait for them as long as they do by default.
    *("--set", "group_initial_rebalance_delay_ms=200"),
)


@contextmanager
def broker(data: str) -> Iterator[str]:
    """Yield HOST:PORT of a broker that is ready; stop it cleanly at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "respool.cli", "serve", "--data", data, *OPTIONS],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line.startswith("respool listening on "):
            raise SystemExit(f"the broker did not start (exit code {process.wait()})")
        yield line.removeprefix("respool listening on ").strip()
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()
