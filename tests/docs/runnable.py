"""The runnable blocks of a page: ```` ```python kind ```` or ```` ```sh kind ````, run as they are written.

In `make test` their commands are forked (see `forked_commands`); in `make fuzz` each starts a Python of its own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

from support.forked_commands import forked_commands

ROOT = Path(__file__).resolve().parents[2]
ADDRESS_IN_DOCS = "127.0.0.1:9092"
# Groups form at once; with the default they would wait three seconds for more members.
BROKER_SETTINGS = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_partitions": 3}


class Served(Protocol):
    """A broker or a cluster: where it is reached, and the folder beside which commands are run."""

    @property
    def address(self) -> str: ...

    @property
    def data(self) -> Path: ...


class Block(NamedTuple):
    language: str
    kind: str
    text: str


def blocks(page: str) -> list[Block]:
    """Those to try; what installs is left out, because tests run where all is installed."""
    return [block for block in all_blocks(page) if block.kind != "install"]


def all_blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    found = re.findall(r"^```(\w+) ([\w-]+)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [Block(*one) for one in found]


def run_block(
    block: Block, broker: Served, *, timeout_s: float = 60, python: str = sys.executable
) -> str:
    """What it prints; it must end well. `python` is that of the environment in which it runs."""
    done = try_block(block, broker, timeout_s=timeout_s, python=python)
    assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def try_block(
    block: Block, broker: Served, *, timeout_s: float = 60, python: str = sys.executable
) -> "subprocess.CompletedProcess[str]":
    text = block.text.replace(ADDRESS_IN_DOCS, broker.address)
    path = os.pathsep.join([str(Path(python).parent), os.environ["PATH"]])
    if python == sys.executable and os.environ.get("RESPOOL_FUZZ") != "long":
        path = os.pathsep.join([str(forked_commands()), path])
        python = str(forked_commands() / "python")
    command = (
        ["bash", "-euo", "pipefail", "-c", text] if block.language == "sh" else [python, "-c", text]
    )
    environment = {**os.environ, "RESPOOL_BROKER": broker.address, "PATH": path}
    return subprocess.run(
        command,
        cwd=broker.data.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
