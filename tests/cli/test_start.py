"""A command ends with its own exit code, whatever native threads do at that time."""

import subprocess
import sys
from pathlib import Path

import pytest

import respool
from respool.client.process_exit import FLUSH_FAILED
from support.native_thread import THREAD_IN_CALLBACK

BLOCKED_IN_PYTHON = (
    THREAD_IN_CALLBACK
    + """
from respool.cli.start import main
sys.argv[1:] = ["--version"]
sys.exit(main())
"""
)

HANDLERS = """
import atexit, sys, threading
import {module}
from respool.cli import start

def run():
    import respool.cli.main
    atexit.register(print, "handler")
    thread = threading.Thread(target=lambda: (threading.main_thread().join(), print("thread")))
    thread.start()
    sys.stdout.write("no newline, ")
    return 3

import respool.cli.main
respool.cli.main.main = run
sys.exit(start.main())
"""


def ended(script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_native_thread_in_a_callback_does_not_abort_a_command_that_is_done(
    tmp_path: Path,
) -> None:
    done = ended(BLOCKED_IN_PYTHON, str(tmp_path))
    assert (done.returncode, done.stdout) == (0, f"respool {respool.__version__}\n"), done.stderr


@pytest.mark.parametrize("module", ["pyarrow", "json"])
def test_threads_and_exit_handlers_are_waited_for_and_output_is_flushed(module: str) -> None:
    done = ended(HANDLERS.format(module=module))
    assert done.returncode == 3, done.stderr
    assert done.stdout == "no newline, thread\nhandler\n"


def test_output_that_cannot_be_flushed_is_no_success() -> None:
    script = (
        "import sys, pyarrow; from respool.client.process_exit import ProcessExit;"
        "end = ProcessExit(); sys.stdout = open('/dev/full', 'w'); sys.stdout.write('lost'); end.code = 0"
    )
    assert ended(script).returncode == FLUSH_FAILED
