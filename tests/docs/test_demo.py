"""`make demo` does what it shows, and does not say so when it does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1100,
        check=False,
    )


@pytest.mark.clients
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("spark")
def test_the_demo_counts_what_it_must_and_says_nothing_it_should_not() -> None:
    done = run("-m", "demo")
    assert done.returncode == 0, done.stdout
    # It is moved only by the second command, and both say the same of it.
    first, _, second = done.stdout.partition("--dry-run\n")[2].partition("$ respool group reset")
    assert "; nothing was changed" in first
    assert "pricing was moved in 3 partitions" in second
    assert "nothing was changed" not in second
    counted = done.stdout.partition("What was counted")[2]
    for claim in (
        "fraud: committed, then read by the next",
        "rides charged",
        "charges written when killed, then aborted",
        "pricing: read again",
        "bronze: events, each once",
        "quarantine: broken events",
        "replay: rides of three days, scored again",
    ):
        assert claim in counted
    assert "expected" not in counted
    # It was killed inside a transaction, and had written something there that nobody may count.
    assert re.search(r"billing-1 +Ongoing ", done.stdout)
    # Tables have their headings, also in a pipe like this one.
    assert re.search(r"topic +partition +from +to +replays +skips", first)
    aborted = re.search(r"then aborted +([\d,]+)  ok", counted)
    assert aborted is not None
    assert int(aborted[1].replace(",", "")) > 0
    # What librdkafka logs by itself has no place in it.
    assert "%6|" not in done.stdout
    assert "Traceback" not in done.stdout


def test_a_wrong_count_makes_the_demo_fail() -> None:
    done = run(
        "-c",
        "import sys; from demo.screen import report; "
        "sys.exit(report({'right': (2, 2), 'wrong': (1, 2)}))",
    )
    assert done.returncode == 1
    assert "expected 2" in done.stdout
    assert "the counts are wrong" in done.stdout
