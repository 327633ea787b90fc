"""Each page names the extra it needs before its first example, and works where nothing else is installed."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, ROOT, Block, all_blocks, run_block
from support.broker_process import BrokerProcess
from support.cluster_process import ClusterProcess

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
DOCUMENTS = [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
]
PAGES = [page for page in DOCUMENTS if all_blocks(page)]
# What starts brokers, which this test does itself, and what needs two terminals.
NOT_RUN = {"background", "terminals"}
TARGET_OF_MIRRORS = "127.0.0.1:9192"
TOPIC_TO_MIRROR = "respool topic create trips --partitions 2\nseq 100 | respool produce trips\n"
# Spark starts a JVM in some of them, and the first read compiles the kernels.
SECONDS_MAX = 600
INSTALLS_SECONDS_MAX = 1800
TABLE_WITH_A_ROW = """
import sys
from datetime import UTC, datetime
import pyarrow as pa
from deltalake import write_deltalake

now = datetime.now(UTC)
rows = {"window_start": [now], "driver_id": ["driver-1"], "city": ["Bonn"], "rides": [3], "fares": [30.0],
    "distance_km": [9.0], "driving_s": [1200], "date": [now.date()]}
write_deltalake(sys.argv[1], pa.table(rows), partition_by=["date"])
"""


def installs(page: str) -> tuple[str, ...]:
    return tuple(block.text.strip() for block in all_blocks(page) if block.kind == "install")


# An environment is built once, for all pages that install the same.
ENVIRONMENTS = sorted({installs(page) for page in PAGES})


@pytest.mark.parametrize("page", PAGES)
def test_a_page_installs_before_its_first_example(page: str) -> None:
    first = all_blocks(page)[0]
    assert first.kind == "install"
    assert re.fullmatch(r'pip install "\.\[[a-z,-]+\]"\n', first.text), first.text


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_page_that_names_no_extra_has_no_example_or_says_that_it_needs_none(
    document: str,
) -> None:
    """As the README promises: "Every page with examples names its extra"."""
    text = (ROOT / document).read_text()
    has_examples = re.search(r"^```(?:sh|python)\b", text, re.MULTILINE) is not None
    assert has_examples == (document in PAGES or "needs no extra" in text)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_page_names_extras_that_exist_and_ways_that_work(document: str) -> None:
    """`pip install 'respool[client]'` finds nothing as long as no index has Respool."""
    text = (ROOT / document).read_text()
    named = re.findall(r'pip install (?:-\S+ )*"[^"\[]*\[([\w,-]+)\]"', text)
    assert {one for names in named for one in names.split(",")} <= set(EXTRAS)
    assert re.findall(r"pip install '?respool\b.*", text) == []
    assert "`respool[" not in text


def test_the_readme_has_the_size_of_every_extra() -> None:
    rows = re.findall(
        r"^\| `([\w-]+)` \|.*\| \d[\d,]* MB \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted(EXTRAS)


class Environment:
    """A virtual environment with pip alone; blocks install into it what they name."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        self._wheel = wheel

    def install(self, command: str) -> None:
        """Run a page's `pip install`, with the wheel of this checkout in place of the checkout."""
        words = [re.sub(r"^\.(?=\[|$)", str(self._wheel), word) for word in shlex.split(command)]
        assert words[:2] == ["pip", "install"]
        self.run("-m", *words)

    def run(self, *arguments: str) -> None:
        done = subprocess.run(
            [self.python, *arguments],
            capture_output=True,
            text=True,
            timeout=INSTALLS_SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("RESPOOL_WHEEL"):
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", f"--wheel-dir={folder}"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)],
        check=True,
        timeout=INSTALLS_SECONDS_MAX,
    )
    (built,) = folder.glob("respool-*.whl")
    return built


@pytest.fixture
def environment(
    tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Environment]:
    # They would bring this checkout and its packages in.
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    made = Environment(tmp_path / "environment", wheel)
    yield made
    # Up to a gigabyte and a half.
    shutil.rmtree(made.folder)


@pytest.mark.clients
@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("commands", ENVIRONMENTS, ids="; ".join)
def test_pages_work_with_what_they_install_alone(
    commands: tuple[str, ...], environment: Environment, tmp_path: Path
) -> None:
    for page in (page for page in PAGES if installs(page) == commands):
        folder = tmp_path / Path(page).stem
        folder.mkdir()
        run_page(page, environment, folder)


@pytest.mark.clients
@pytest.mark.skipif("RESPOOL_WHEEL" not in os.environ, reason="make dist")
@pytest.mark.timeout(3600)
def test_the_readme_works_with_what_it_installs_alone(
    environment: Environment, tmp_path: Path
) -> None:
    run_page("README.md", environment, tmp_path)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(3600)
def test_tables_are_reported_with_the_extra_for_it_alone(
    environment: Environment, tmp_path: Path
) -> None:
    environment.install('pip install ".[report]"')
    lake = tmp_path / "lake"
    environment.run("-c", TABLE_WITH_A_ROW, str(lake / "tables" / "gold_drivers"))
    for command in ("report", "clean"):
        environment.run("-m", "respool.cli", "pipeline", command, "--data", str(lake))
    assert (lake / "reports" / "pipeline.html").exists()


def run_page(page: str, environment: Environment, folder: Path) -> None:
    tried = [block for block in all_blocks(page) if block.kind not in NOT_RUN]
    environment.install(tried[0].text)
    if page == "docs/testing.md":
        run_tests_of_page(tried, environment, folder)
    elif page == "docs/cluster.md":
        cluster = ClusterProcess(
            folder / "respool-cluster", "--listen=127.0.0.1:0", python=environment.python
        )
        with cluster:
            cluster.wait_until_up()
            for block in tried[1:]:
                run_block(block, cluster, timeout_s=SECONDS_MAX, python=environment.python)
            assert cluster.stop() == 0
    elif page == "docs/security.md":
        run_secured_page(tried[1:], environment, folder)
    else:
        for number, story in enumerate(stories(tried[1:])):
            run_story(story, environment, folder / str(number))


def run_secured_page(tried: list[Block], environment: Environment, folder: Path) -> None:
    """Its first tour; the other one restarts its broker with other settings, and is run in tests/docs."""
    # The page exports a variable for all that follows.
    exported = next(
        line for block in tried for line in block.text.splitlines() if line.startswith("export ")
    )
    python = environment.python
    data = folder / "respool-data"
    with BrokerProcess(data, BROKER_SETTINGS, python=python, flags=["--secure"]) as broker:
        for block in tried:
            if block.kind != "tour":
                continue
            text = f"{exported}\n{block.text}" if block.language == "sh" else block.text
            run_block(block._replace(text=text), broker, timeout_s=SECONDS_MAX, python=python)


def stories(tried: list[Block]) -> Iterator[list[Block]]:
    """The blocks that follow each other on the same brokers."""
    yield [block for block in tried if block.kind != "start-mirror"]
    for block in tried:
        if block.kind == "start-mirror":
            # The page's tour has promoted the topic, so this one is mirrored to another broker.
            yield [Block("sh", "topic", TOPIC_TO_MIRROR), block]


def run_story(story: list[Block], environment: Environment, folder: Path) -> None:
    folder.mkdir()
    settings = {**BROKER_SETTINGS, "transactions_topic_partitions": 3}
    python = environment.python
    with (
        # The README's commands name its folder.
        BrokerProcess(folder / "respool-data", settings, python=python) as broker,
        BrokerProcess(folder / "there", settings, python=python) as there,
    ):
        for block in story:
            if block.kind == "install":
                environment.install(block.text)
            else:
                text = block.text.replace(TARGET_OF_MIRRORS, there.address)
                run_block(block._replace(text=text), broker, timeout_s=SECONDS_MAX, python=python)


def run_tests_of_page(tried: list[Block], environment: Environment, folder: Path) -> None:
    for block in tried[1:]:
        words = ["-c", block.text]
        if block.kind == "pytest":
            (folder / "test_page.py").write_text(block.text)
            words = ["-m", "pytest", "-q", "--strict-markers"]
        done = subprocess.run(
            [environment.python, *words],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
