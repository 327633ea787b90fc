"""`make demo` does what it shows, and does not say so when it does not."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from demo import screen, spark_act
from demo.__main__ import play
from demo.size import Size

from docs.shared_spark import run_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


class Place(NamedTuple):
    """Where a command runs in this process: beside `data`."""

    address: str
    data: Path


@pytest.mark.clients
def test_the_demo_counts_what_it_must_and_says_nothing_it_should_not(
    spark: "SparkSession",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """With less in it, and its second act by the Spark that tests share."""

    def respool_here(address: str, *words: str, has_broker: bool = True) -> None:
        if words[:2] != ("pipeline", "run"):
            screen.respool(address, *words, has_broker=has_broker)
            return
        place = Place(address=address, data=tmp_path / "data")
        print(run_command([*words, "--broker", address], place, spark))

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(spark_act, "respool", respool_here)
    with in_one_stream():
        code = play(Size(rides=6_000, spark_events=5_000), out=tmp_path / "kept")
    shown = capfd.readouterr().out
    assert code == 0, shown
    check(shown, tmp_path / "kept")


@contextmanager
def in_one_stream() -> Iterator[None]:
    """What processes started here say as errors stands between what they print, as on a terminal."""
    before = os.dup(2)
    os.dup2(1, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@pytest.mark.clients
@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("spark-processes")
def test_the_whole_demo_as_make_demo_runs_it(tmp_path: Path) -> None:
    done = run("-m", "demo", "--out", str(tmp_path / "kept"))
    assert done.returncode == 0, done.stdout
    check(done.stdout, tmp_path / "kept")


def check(shown: str, out: Path) -> None:
    # It is moved only by the second command, and both say the same of it.
    first, _, second = shown.partition("--dry-run\n")[2].partition("$ respool group reset")
    assert "; nothing was changed" in first
    assert "pricing was moved in 3 partitions" in second
    assert "nothing was changed" not in second
    counted = shown.partition("What was counted")[2]
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
    assert re.search(r"billing-1 +Ongoing ", shown)
    # Tables have their headings, also in a pipe like this one.
    assert re.search(r"topic +partition +from +to +replays +skips", first)
    aborted = re.search(r"then aborted +([\d,]+)  ok", counted)
    assert aborted is not None
    assert int(aborted[1].replace(",", "")) > 0
    # Its reports are kept, and it says where.
    for name in ("pipeline", "replay-v2-*"):
        (kept,) = out.glob(f"{name}.html")
        assert f"report: {kept}\n" in shown
        assert "<svg" in kept.read_text()
    # What librdkafka logs by itself has no place in it.
    assert "%6|" not in shown
    assert "Traceback" not in shown


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
