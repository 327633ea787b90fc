"""What holds for every test: the same examples in every run, unless they are meant to be new ones.

A change that passes here passes in CI too. New examples are looked for by `make fuzz` (RESPOOL_FUZZ=long); what it
finds becomes a test of its own.
"""

import gc
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support.compiled_once import CompiledOnce
from support.durations import Durations
from support.running_order import group_by_shared_fixture, in_running_order
from support.spark import prepare_jvms

settings.register_profile("same", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("new", deadline=None, print_blob=True)
settings.load_profile("new" if os.environ.get("RESPOOL_FUZZ") == "long" else "same")

prepare_jvms()

# Who is started in the background by some shells ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _signal_handlers_restored() -> Iterator[None]:
    """A handler that a test leaves behind swallows the signals of the tests after it in this process."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.fixture(autouse=True)
def _leaks_found_in_their_test() -> Iterator[None]:
    """What a test forgot to close fails that test. It would fail a later one, in which the garbage is collected."""
    before = open_files()
    yield
    if open_files() > before:
        gc.collect()


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


def pytest_configure(config: pytest.Config) -> None:
    # A worker's reports are recorded by the controller.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(), "durations")
        config.pluginmanager.register(CompiledOnce(), "compiled-once")


def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto`: three workers per core, because tests with processes take a third of their time on a processor."""
    # Long runs compute, for which xdist's own answer is right; it also takes a number from the environment.
    if os.environ.get("RESPOOL_FUZZ") == "long" or "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return 3 * (os.cpu_count() or 1)


def pytest_itemcollected(item: pytest.Item) -> None:
    group_by_shared_fixture(item)


def pytest_collection_finish() -> None:
    """The modules and cases, half a gigabyte, stay to the end: no collection of garbage needs to look at them."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """At the interpreter's end all is collected: DuckDB reports what was not."""
    gc.unfreeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = in_running_order(items)
