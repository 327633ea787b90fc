"""The fixtures, as pytest finds them in a project that knows nothing of this one."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient


def partitions_of(broker, topic):
    topics = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(topic, timeout=20).topics
    return len(topics[topic].partitions)


def test_a_broker_of_its_own(respool_broker):
    respool_broker.create_topic("rides")
    assert partitions_of(respool_broker, "rides") == 1
    respool_broker.clock.advance(days=1)


@pytest.mark.respool(topics={"rides": 6}, mode="process")
def test_with_arguments(respool_broker):
    assert partitions_of(respool_broker, "rides") == 6
    assert "process" in repr(respool_broker)


@pytest.mark.respool(settings={"num_partitions": 4})
class TestMany:
    @pytest.mark.respool(topics={"rides": 2})
    def test_the_nearest_marker_adds_to_the_others(self, respool_broker):
        assert partitions_of(respool_broker, "rides") == 2
        assert partitions_of(respool_broker, "made-by-the-client") == 4


seen = []


@pytest.mark.parametrize("name", ["a b/c", "é"])
def test_one_broker_for_all_and_a_topic_each(respool_session_broker, respool_topic, name):
    seen.append((respool_session_broker.bootstrap, respool_topic))
    assert partitions_of(respool_session_broker, respool_topic) == 1
    assert len({address for address, _ in seen}) == 1
    assert len({topic for _, topic in seen}) == len(seen)
"""


def run_pytest(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_fixtures_and_the_marker_are_there_without_any_set_up(tmp_path: Path) -> None:
    (tmp_path / "test_rides.py").write_text(TESTS)
    done = run_pytest(tmp_path, "--strict-markers", "-q")
    assert "5 passed" in done.stdout, done.stdout + done.stderr


def test_the_brokers_own_assertions_are_not_rewritten(tmp_path: Path) -> None:
    """A whole package that brings a plugin is marked for that, where it is installed and not only linked."""
    (tmp_path / "conftest.py").write_text(
        "def pytest_configure(config):\n"
        "    config.pluginmanager.rewrite_hook.mark_rewrite('respool')\n"
    )
    (tmp_path / "test_it.py").write_text(
        "def test_it(respool_broker):\n"
        "    import respool.node.node\n"
        "    assert '@pytest_ar' not in vars(respool.node.node)\n"
    )
    done = run_pytest(tmp_path, "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning")
    assert "1 passed" in done.stdout, done.stdout


def test_the_shared_broker_takes_arguments_from_a_conftest(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n\n"
        "@pytest.fixture(scope='session')\n"
        "def respool_session_arguments():\n"
        "    return {'settings': {'num_partition': 3}}\n"
    )
    (tmp_path / "test_it.py").write_text("def test_it(respool_session_broker): pass\n")
    done = run_pytest(tmp_path, "-q")
    assert done.returncode == 1
    assert "BrokerDidNotStart" in done.stdout
    assert "did you mean num_partitions?" in done.stdout


def test_whoever_does_not_use_it_pays_nothing_for_it(tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\n"
        "def test_nothing_of_the_broker_is_here():\n"
        "    ours = [name for name in sys.modules if name.startswith('respool')]\n"
        "    assert 'respool.testing.plugin' in ours\n"
        "    heavy = ('respool.node', 'respool.broker', 'respool.wire', 'respool.testing.broker_runner')\n"
        "    assert not [name for name in ours if name.startswith(heavy)]\n"
        "    assert not {'kio', 'uvloop', 'confluent_kafka'} & sys.modules.keys()\n"
    )
    done = run_pytest(tmp_path, "-q")
    assert "1 passed" in done.stdout, done.stdout


def test_a_marker_whose_argument_has_no_name_fails_and_says_so(tmp_path: Path) -> None:
    """It was passed over: the test ran, without its topics."""
    (tmp_path / "test_unnamed.py").write_text(
        "import pytest\n\n\n"
        "@pytest.mark.respool({'rides': 6})\n"
        "def test_rides(respool_broker): ...\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 1
    assert "takes arguments by name" in done.stdout
