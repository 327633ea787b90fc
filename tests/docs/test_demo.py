"""`make demo` does what it shows, and does not say so when it does not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from demo import spark_act

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
def test_the_demo_counts_what_it_must_and_says_nothing_it_should_not(tmp_path: Path) -> None:
    done = run("-m", "demo", "--out", str(tmp_path / "kept"))
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
    # Its reports are kept, and it says where.
    for name in ("pipeline", "replay-v2-*"):
        (kept,) = (tmp_path / "kept").glob(f"{name}.html")
        assert f"report: {kept}\n" in done.stdout
        assert "<svg" in kept.read_text()
    # What librdkafka logs by itself has no place in it.
    assert "%6|" not in done.stdout
    assert "Traceback" not in done.stdout


def test_reports_are_kept_where_they_were_asked_for_or_in_the_users_folder(tmp_path: Path) -> None:
    reports = tmp_path / "lake" / "reports"
    reports.mkdir(parents=True)
    (reports / "pipeline.html").write_text("new")
    out = tmp_path / "out"
    out.mkdir()
    (out / "pipeline.html").write_text("of the last demo")
    (out / "theirs.txt").write_text("stays")
    assert spark_act.keep_reports(tmp_path / "lake", out) == [out / "pipeline.html"]
    assert (out / "pipeline.html").read_text() == "new"
    assert (out / "theirs.txt").read_text() == "stays"
    shown = run("-m", "demo", "--help").stdout
    assert "default: respool-demo" in shown


def test_a_wrong_count_makes_the_demo_fail() -> None:
    done = run(
        "-c",
        "import sys; from demo.screen import report; "
        "sys.exit(report({'right': (2, 2), 'wrong': (1, 2)}))",
    )
    assert done.returncode == 1
    assert "expected 2" in done.stdout
    assert "the counts are wrong" in done.stdout
