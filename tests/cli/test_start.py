"""A command ends with its own exit code, whatever native threads do at that time."""

import subprocess
import sys
from pathlib import Path

import pytest

import respool
from respool.cli.start import FLUSH_FAILED

# A thread of Arrow's pool waits in a Python callback while the command ends. Only the interpreter's finalization frees
# it, and there it takes the GIL: CPython ends the thread, and C++ aborts the process.
BLOCKED_IN_PYTHON = """
import io, os, sys, threading
import pyarrow as pa
from pyarrow import dataset, fs, parquet
from respool.cli.start import main

first, second = sys.argv[1] + "/1.parquet", sys.argv[1] + "/2.parquet"
for path in (first, second):
    parquet.write_table(pa.table({"number": [1]}), path)
gate, key = os.pipe()
is_waiting = threading.Event()

class Blocking(io.FileIO):
    def read(self, size=-1):
        is_waiting.set()
        os.read(gate, 1)
        return super().read(size)

class Files(fs.FSSpecHandler):
    def __init__(self): pass
    def get_type_name(self): return "test"
    def open_input_file(self, path):
        return pa.PythonFile(Blocking(path) if path == second else io.FileIO(path), mode="r")

class Finalized:
    def __del__(self, close=os.close, key=key, tasks=lambda x=os.listdir: x("/proc/self/task")):
        before = tasks()
        close(key)
        while tasks() == before:
            pass

sys.never_freed_before = Finalized()
batches = dataset.FileSystemDataset.from_paths(
    [first, second],
    schema=pa.schema({"number": pa.int64()}),
    format=dataset.ParquetFileFormat(),
    filesystem=fs.PyFileSystem(Files()),
).to_batches()
next(batches)
is_waiting.wait()
sys.argv[1:] = ["--version"]
sys.exit(main())
"""

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
        "import sys, pyarrow; from respool.cli.start import ProcessExit;"
        "end = ProcessExit(); sys.stdout = open('/dev/full', 'w'); sys.stdout.write('lost'); end.code = 0"
    )
    assert ended(script).returncode == FLUSH_FAILED
