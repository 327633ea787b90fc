"""What a process of Spark's that serves many tasks does once."""

import gc
import subprocess
import sys

import pytest

from respool.spark import worker

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
