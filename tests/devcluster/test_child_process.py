"""Children that a command starts: how they end, and that they do not outlive it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from respool.devcluster.child_process import ChildProcess
from support.waiting import wait_until

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
PARENT = """
import sys, time
from pathlib import Path
from respool.devcluster.child_process import ChildProcess
child = ChildProcess("sleeper", sys.argv[2:], log=Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""


def started(tmp_path: Path, program: str) -> ChildProcess:
    return ChildProcess("it", [sys.executable, "-c", program], log=tmp_path / "it.log")


def wait(child: ChildProcess) -> None:
    assert asyncio.run(child.wait_for_end(30))


def test_how_it_ended_and_its_last_words_are_told(tmp_path: Path) -> None:
    child = started(tmp_path, "print('first'); print('no room left'); raise SystemExit(3)")
    wait(child)
    assert child.how_it_ended == "ended with exit code 3"
    assert child.last_words == "no room left"
    assert child.how_and_why_it_ended == "ended with exit code 3: no room left"


def test_its_last_words_are_no_reason_where_it_ended_cleanly(tmp_path: Path) -> None:
    child = started(tmp_path, "print('led here, epoch 0')")
    wait(child)
    assert child.how_and_why_it_ended == "ended with exit code 0"


def test_the_last_words_of_an_earlier_life_are_not_its_own(tmp_path: Path) -> None:
    wait(started(tmp_path, "print('earlier')"))
    child = started(tmp_path, "pass")
    wait(child)
    assert child.last_words == "it wrote nothing to its log"
    assert (tmp_path / "it.log").read_text() == "earlier\n"


def test_it_is_asked_to_end_and_killed_if_it_does_not(tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    child = started(tmp_path, deaf)
    wait_until(lambda: child.last_words == "deaf", "it runs")
    child.ask_to_end()
    assert not asyncio.run(child.wait_for_end(0.2))
    child.kill()
    wait(child)
    assert child.how_it_ended == "was killed by SIGKILL"
    assert child.how_and_why_it_ended == "was killed by SIGKILL"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_a_child_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(log), *SLEEPER], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        wait_until(lambda: log.exists() and log.read_text() == "up\n", "the child runs")
        assert psutil.pid_exists(pid)
        parent.kill()
    wait_until(lambda: not is_running(pid), "the child is gone")


def is_running(pid: int) -> bool:
    """Somebody has to collect the dead; until then they are zombies."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
