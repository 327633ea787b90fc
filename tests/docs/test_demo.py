"""`make demo` does what it shows, and does not say so when it does not.

The whole demo is run in make fuzz. In make test, its first act is played with less in it, and the command line takes
the commands of the second. That these jobs give what the second act counts is shown by `test_pipeline_page.py`: its
tour runs the same ones.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from demo import spark_act
from demo.__main__ import play
from demo.screen import Counts
from demo.size import Size

import respool
from respool.cli.main import main
from respool.cli.pipelines import pipeline_run
from respool.pipeline.job_settings import ModelChoice, PipelineSettings
from respool.testing import Broker

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
def test_the_first_act_counts_what_it_must_and_says_nothing_it_should_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(spark_act, "run", lambda *_, **__: {})
    with in_one_stream():
        code = play(Size(rides=6_000, spark_events=0), out=tmp_path)
    shown = capfd.readouterr().out
    assert code == 0, shown
    check_first_act(shown)


def test_the_command_line_takes_the_commands_of_the_second_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it but the jobs themselves, and the report of their tables: it is kept, and said to be where it is."""
    wanted: list[tuple[list[str], PipelineSettings]] = []
    commands = []

    def run_jobs(jobs: list[str], settings: PipelineSettings, *_: object, **__: object) -> None:
        wanted.append((jobs, settings))

    def respool_here(address: str, *words: str, has_broker: bool = True) -> None:
        commands.append(words[:2])
        if words[:2] == ("pipeline", "report"):
            reports = Path(words[words.index("--data") + 1], "reports")
            reports.mkdir(parents=True)
            (reports / "pipeline.html").write_text("charts")
        else:
            assert main([*words, "--broker", address]) == 0

    def counted(address: str, lake: Path, truth: Path, *, events: int, since_ms: int) -> Counts:
        assert respool.read_table(spark_act.TOPIC, bootstrap=address).num_rows == events
        ((jobs, settings),) = wanted
        assert jobs == ["bronze", "silver", "gold", "fraud", "replay-fraud"]
        assert (settings.data, settings.truth) == (lake, truth)
        assert (settings.topic, settings.scores_topic) == (spark_act.TOPIC, spark_act.SCORES)
        assert settings.model == ModelChoice(name="v1", recipe="logistic")
        assert settings.new_model == ModelChoice(name="v2", recipe="forest")
        assert settings.replay_since_ms == since_ms
        return {"counted": (1, 1)}

    monkeypatch.setattr(pipeline_run, "run", run_jobs)
    monkeypatch.setattr(spark_act, "respool", respool_here)
    monkeypatch.setattr(spark_act, "counted", counted)
    with Broker() as broker:
        played = spark_act.run(broker.bootstrap, tmp_path, events=300, out=tmp_path / "kept")
    assert played == {"counted": (1, 1)}
    kept = tmp_path / "kept" / "pipeline.html"
    assert f"report: {kept}\n" in capsys.readouterr().out
    assert kept.read_text() == "charts"
    assert commands == [("rides", "generate"), ("pipeline", "run"), ("pipeline", "report")]


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
    check_first_act(done.stdout)
    check_second_act(done.stdout, tmp_path / "kept")


def check_first_act(shown: str) -> None:
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
    # What librdkafka logs by itself has no place in it.
    assert "%6|" not in shown
    assert "Traceback" not in shown


def check_second_act(shown: str, out: Path) -> None:
    counted = shown.partition("What was counted")[2]
    for claim in (
        "bronze: events, each once",
        "quarantine: broken events",
        "replay: rides of three days, scored again",
    ):
        assert claim in counted
    # Its reports are kept, and it says where.
    for name in ("pipeline", "replay-v2-*"):
        (kept,) = out.glob(f"{name}.html")
        assert f"report: {kept}\n" in shown
        assert "<svg" in kept.read_text()


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
