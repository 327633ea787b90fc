"""`import respool` is light, and its public names are imported when they are used."""

import subprocess
import sys

import pytest

import respool

HEAVY = ("pyarrow", "numba", "numpy", "kio", "confluent_kafka", "asyncio")


def run(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


def test_importing_respool_brings_nothing_else() -> None:
    code = f"import respool, sys; print([one for one in {HEAVY} if one in sys.modules])"
    assert run(code).stdout == "[]\n"


@pytest.mark.parametrize("name", [one for one in respool.__all__ if one != "__version__"])
def test_every_public_name_can_be_used(name: str) -> None:
    assert callable(getattr(respool, name))
    assert name in dir(respool)


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'read_tabel'"):
        respool.read_tabel  # type: ignore[attr-defined]  # noqa: B018


def test_a_missing_library_is_reported_with_what_to_install() -> None:
    code = """
import sys
sys.modules["pyarrow"] = None
try:
    from respool import read_table
except ImportError as error:
    print(error)
"""
    done = run(code)
    assert 'pip install ".[arrow]"' in done.stdout, done.stderr
