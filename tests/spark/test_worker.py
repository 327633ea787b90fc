"""What a process of Spark's that serves many tasks does once."""

import gc
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from respool.spark import worker
from support.native_thread import THREAD_IN_CALLBACK

FORKED_LIKE_A_WORKER = """
import gc, sys, weakref
from types import SimpleNamespace
from respool.spark import worker

sys.modules["__main__"].__spec__ = SimpleNamespace(name=worker.DAEMON)
class Cycle: pass
cycle = Cycle(); cycle.me = cycle; gone = weakref.ref(cycle); del cycle
gc.disable()
worker.freeze_loaded_objects()
assert gone() is None, "garbage was kept for good"
first = gc.get_freeze_count()
worker.freeze_loaded_objects()
second = gc.get_freeze_count()
import wave
worker.freeze_loaded_objects()
print(first > 0, second == first, gc.get_freeze_count() > second)
"""

SPARKS_OWN = (
    THREAD_IN_CALLBACK
    + """
import atexit, logging
from importlib.machinery import ModuleSpec
sys.modules["__main__"].__spec__ = ModuleSpec("pyspark.sql.streaming.python_streaming_source_runner", None)

class Told(logging.Handler):
    def close(self):
        print("log closed")

logging.getLogger().addHandler(Told())
import respool.spark.data_source
atexit.register(print, "handler")
sys.stdout.write("no newline, ")
{end}
"""
)


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("sys.exit(-1)", 255), ("sys.exit('no')", 1), ("raise OSError('lost')", 1)],
)
def test_a_native_thread_does_not_abort_a_process_of_sparks_and_its_exit_code_is_kept(
    tmp_path: Path, end: str, code: int
) -> None:
    script = SPARKS_OWN.replace("{end}", end)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (code, "no newline, handler\nlog closed\n"), (
        done.stderr
    )
    assert ("no" in done.stderr, "OSError: lost" in done.stderr) == ("'no'" in end, "lost" in end)


def test_programs_and_the_daemon_end_as_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sys.exit
    worker.skip_finalization()
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec(worker.DAEMON, None))
    worker.skip_finalization()
    assert sys.exit is before
    assert worker._process_exit is None


def test_what_a_worker_has_loaded_is_frozen_once_and_again_when_more_is_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED_LIKE_A_WORKER], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True", "True", "True"], done.stderr


def test_other_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_frozen_at", set[int]())
    before = gc.get_freeze_count()
    worker.freeze_loaded_objects()
    assert gc.get_freeze_count() == before
