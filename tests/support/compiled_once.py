"""What all workers of a run need is compiled once, before they start.

In a fresh clone nothing is compiled. Workers collect the same files in the same order, so each of them would compile
all of them, and rewrite the asserts of tests as pytest does: 16 s of processor time in each worker. Kernels take ten
more in each process that uses them before another one has compiled them.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from support import compiled_sources


class CompiledOnce:
    """A plugin for the process that starts the workers."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        if sys.dont_write_bytecode:
            return
        # On another core meanwhile.
        with subprocess.Popen([sys.executable, compiled_sources.__file__]):
            rewrite_tests(config, files_of(config.args))


def files_of(arguments: Sequence[str]) -> Iterator[Path]:
    """The files from which pytest collects tests, and the conftest files beside them."""
    for argument in arguments:
        path = Path(argument.partition("::")[0])
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.match("test_*.py") or file.name == "conftest.py":
                yield file


def rewrite_tests(config: pytest.Config, files: Iterable[Path]) -> None:
    """Rewrite the asserts of tests, and keep the result where pytest looks for it."""
    # pytest has no public API for this. If it changes, each worker rewrites for itself.
    with suppress(ImportError, AttributeError, TypeError, ValueError, KeyError):
        from _pytest.assertion import rewrite

        state = config.stash[rewrite.assertstate_key]
        for path in files:
            cached = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
            if rewrite._read_pyc(path, cached) is None:
                # What is wrong with a test is said where it is collected.
                with suppress(SyntaxError, OSError):
                    source_hash, code = rewrite._rewrite_test(path, config)
                    cached.parent.mkdir(exist_ok=True)
                    rewrite._write_pyc(state, code, source_hash, cached)
