"""A forked process is started, talked to and ended as any other."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.forked import ForkedProcess
from support.forked_commands import forked_commands
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


# -- commands of a shell


def shell(text: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PATH": f"{forked_commands()}:{os.environ['PATH']}", **more}
    return subprocess.run(
        ["bash", "-c", text], env=environment, capture_output=True, text=True, check=False
    )


def test_a_shell_runs_commands_with_its_streams_and_gets_their_exit_codes() -> None:
    ran = shell(
        """
        respool --version
        echo hello | NAME=Ann python -c 'import os, sys; print(input(), sys.argv[1], os.environ["NAME"])' there
        python -c 'import sys; print("no", file=sys.stderr); sys.exit(7)'
        """
    )
    assert ran.stdout.splitlines()[1:] == ["hello there Ann"]
    assert ran.stdout.startswith("respool ")
    assert (ran.returncode, ran.stderr) == (7, "no\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_command_reaches_the_process(number: signal.Signals) -> None:
    program = (
        "import signal, sys, time\n"
        f"signal.signal({number:d}, lambda *_: sys.exit(9))\n"
        "print(flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [forked_commands() / "python", "-c", program], stdout=subprocess.PIPE
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"\n"
        command.send_signal(number)
        assert command.wait(30) == 9


def test_who_kills_the_command_kills_the_process() -> None:
    ran = shell(
        """
        coproc python -c 'import os, time; print(os.getpid(), flush=True); time.sleep(600)'
        read number <&"${COPROC[0]}"
        kill -9 $COPROC_PID
        echo $number
        """
    )
    pid = int(ran.stdout)
    wait_until(lambda: not psutil.pid_exists(pid), "it is gone too")


def test_a_command_that_is_killed_ends_as_killed() -> None:
    assert shell("exec python -c 'import os; os.kill(os.getpid(), 9)'").returncode == -9
