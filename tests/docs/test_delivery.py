"""The examples of docs/delivery.md, run as they are written; each asserts what it promises."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.runnable import ADDRESS_IN_DOCS, BROKER_SETTINGS, Block, blocks, run_block
from support.broker_process import BrokerProcess

PAGE = "docs/delivery.md"
# Statements of the database: the tables are made by the first ones, then each message has one, or four and a commit.
KILLED_AT = {"unique-key": (2, 4), "offset-with-the-result": (4, 5, 6, 7, 9)}
TOPIC, PRODUCER, *EXAMPLES = blocks(PAGE)

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("delivery")
    with BrokerProcess(folder / "data", BROKER_SETTINGS) as running:
        run_block(TOPIC, running)
        run_block(PRODUCER, running)
        yield running


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.kind)
def test_an_example_keeps_its_promise(example: Block, broker: BrokerProcess) -> None:
    run_block(example, broker)


@pytest.mark.parametrize("kind", ["unique-key", "offset-with-the-result"])
def test_an_example_that_is_killed_again_and_again_counts_each_message_once(
    kind: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    """Killed after each of its writes in turn, before and after the group's commits, and then left to end."""
    (example,) = (one for one in EXAMPLES if one.kind == kind)
    text = example.text.replace(ADDRESS_IN_DOCS, broker.address)
    # The next one takes the place of the one that was killed at once.
    text = re.sub(r'group="([\w-]+)"', r'group="\1-killed", instance="one"', text)
    # Dies in the trace of the statement with this number, before it is carried out.
    killing = (
        "import os, signal, sqlite3, sys\n"
        "left = int(sys.argv[1])\n"
        "def count(statement):\n"
        "    global left\n"
        "    left -= 1\n"
        "    if not left: os.kill(os.getpid(), signal.SIGKILL)\n"
        "connect = sqlite3.connect\n"
        "def connected(*a, **b):\n"
        "    made = connect(*a, **b); made.set_trace_callback(count); return made\n"
        "sqlite3.connect = connected\n"
    )
    for statement in (*KILLED_AT[kind], 0):
        done = subprocess.run(
            [sys.executable, "-c", killing + text, str(statement)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        expected = -signal.SIGKILL if statement else 0
        assert done.returncode == expected, done.stderr


def test_the_page_has_an_example_for_each_way() -> None:
    assert [example.kind for example in (TOPIC, PRODUCER, *EXAMPLES)] == [
        "topic",
        "producer",
        "at-most-once",
        "at-least-once",
        "at-least-once-aiokafka",
        "with-the-result",
        "unique-key",
        "offset-with-the-result",
    ]
