"""The README's five minutes, run as a reader would: every command, in order, against a broker of its own.

Only the address differs: it comes in by the environment, as the README says it may.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from support.broker_process import BrokerProcess

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ADDRESS_IN_README = "127.0.0.1:9092"


class Block(NamedTuple):
    language: str
    kind: str
    text: str


def blocks() -> list[Block]:
    found = re.findall(r"^```(\w+) (\w+)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    return [Block(*one) for one in found]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    # The folder the README's `respool serve` uses, seen from where its commands run.
    with BrokerProcess(tmp_path / "respool-data") as running:
        yield running


def run(command: list[str], broker: BrokerProcess) -> str:
    environment = {
        **os.environ,
        "RESPOOL_BROKER": broker.address,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        command,
        cwd=broker.data.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.clients
def test_the_five_minute_tour_works_as_it_is_written(broker: BrokerProcess) -> None:
    tour = [block for block in blocks() if block.kind == "tour"]
    outputs = []
    for block in tour:
        text = block.text.replace(ADDRESS_IN_README, broker.address)
        if block.language == "sh":
            outputs.append(run(["bash", "-euo", "pipefail", "-c", text], broker))
        else:
            outputs.append(run([sys.executable, "-c", text], broker))
    reading = outputs[1]
    # Five messages read twice; those of one ride in their order.
    assert reading.count("ride-3") == 6
    plain = [
        line.split()[-1] for line in reading.splitlines() if line[:1].isdigit() and "ride-3" in line
    ]
    assert plain == ["requested", "assigned", "finished"]
    # Each partition has a key, so each of two members of a group has messages.
    assert {line[0] for line in reading.splitlines() if line[:1].isdigit()} == {"0", "1", "2"}
    # The confluent-kafka tour adds a ride, and so does the client's; tables see them all.
    assert "ride-8" in outputs[4]
    assert "ride-8" in outputs[5]
    assert "ride-3" in outputs[5]
    assert "1209600000" in outputs[2] or "14 d" in outputs[2] or "2 weeks" in outputs[2]


@pytest.mark.clients
def test_the_same_command_in_two_terminals_shares_the_partitions(broker: BrokerProcess) -> None:
    command = next(block.text for block in blocks() if block.kind == "terminals").split()
    tour = next(block.text for block in blocks() if block.kind == "tour")
    run(["bash", "-euo", "pipefail", "-c", tour], broker)
    module = [sys.executable, "-m", "respool.cli", *command[1:]]
    environment = {**os.environ, "RESPOOL_BROKER": broker.address}
    members = [
        subprocess.Popen(
            module, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    try:
        shares = []
        for member in members:
            assert member.stderr is not None
            # The first may have had all of them until the second came.
            shares.append(
                next(line for line in member.stderr if re.search(r": assigned .* [01]$|n 2$", line))
            )
        assert sorted(share.split(": ")[1].strip() for share in shares) == [
            "assigned partition 2",
            "assigned partitions 0, 1",
        ]
    finally:
        for member in members:
            member.send_signal(signal.SIGINT)
            member.communicate(timeout=30)
    assert [member.returncode for member in members] == [130, 130]


def test_the_readme_has_a_tour_and_says_how_to_start() -> None:
    kinds = [(block.language, block.kind) for block in blocks()]
    assert ("sh", "background") in kinds
    assert ("sh", "install") in kinds
    assert [kind for kind in kinds if kind[1] == "tour"] == [("sh", "tour")] * 3 + [
        ("python", "tour")
    ] * 3


@pytest.mark.parametrize(
    "document", [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))], ids=str
)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
