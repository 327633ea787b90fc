"""A forked process is started, talked to and ended as any other."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.forked import ForkedProcess
from support.waiting import wait_until

ENV = """
import os, sys
print(sys.argv, os.getcwd(), os.environ["NAME"], sys.stdin.read(), __name__)
print("trouble", file=sys.stderr)
sys.exit(3)
"""
SLEEP = "import time; print('here', flush=True); time.sleep(600)"


def close(process: ForkedProcess) -> None:
    process.stdout.close()
    process.stderr.close()


def test_it_has_the_arguments_folder_environment_and_streams_of_a_process_started_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NAME", "later")
    process = ForkedProcess(["-c", ENV, "one", "two"])
    assert process.stdout.read() == f"['-c', 'one', 'two'] {tmp_path} later  __main__\n"
    assert process.stderr.read() == "trouble\n"
    assert process.wait(30) == process.poll() == 3
    close(process)


def test_a_traceback_and_a_module_are_as_python_has_them() -> None:
    failed = ForkedProcess(["-c", "raise ValueError(7)"])
    assert failed.wait(30) == 1
    assert failed.stderr.read().endswith("ValueError: 7\n")
    module = ForkedProcess(["-m", "respool.cli", "--version"])
    assert module.stdout.read().startswith("respool ")
    assert module.wait(30) == 0
    for process in (failed, module):
        close(process)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_ends_it_and_is_told(number: signal.Signals) -> None:
    process = ForkedProcess(["-c", SLEEP])
    assert process.stdout.readline() == "here\n"
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.send_signal(number)
    assert process.wait(30) == -number
    # Its process id may be another's by now.
    process.send_signal(number)
    close(process)


def test_ctrl_c_is_an_exception_in_it() -> None:
    process = ForkedProcess(["-c", SLEEP])
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == -signal.SIGINT
    assert "KeyboardInterrupt" in process.stderr.read()
    close(process)


def test_none_outlives_the_process_that_asked_for_it() -> None:
    tests = str(Path(__file__).parents[1])
    asks = f"""
import os, signal, sys
sys.path.insert(0, {tests!r})
from support.forked import ForkedProcess
process = ForkedProcess(["-c", {SLEEP!r}], ())
process.stdout.readline()
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", asks], stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    assert pid != os.getpid()
    wait_until(lambda: not psutil.pid_exists(pid), "it is gone too")
