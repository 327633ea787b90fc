"""Compiles our sources to bytecode, and kernels to machine code: a program for `compiled_once`.

Kernels are compiled when they are first used, so each is used once. Hypothesis parses all sources for the constants in
them, which are values that are worth trying: it keeps them, too.
"""

import compileall
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parents[2] / "src"
# Where numba caches compiled kernels beside their sources.
KERNELS = (SOURCE / "respool" / "columnar", SOURCE / "respool" / "rides")
START_MS = 1_700_000_000_000


def main() -> None:
    # Where something is wrong, tests say it.
    compileall.compile_dir(SOURCE, quiet=2)
    if not kernels_are_compiled(KERNELS):
        use_kernels()
    keep_constants(SOURCE)


def kernels_are_compiled(folders: Iterable[Path]) -> bool:
    """Whether kernels in each of these folders have been used since its sources changed last."""
    return all(
        newest(folder.glob("__pycache__/*.nbi")) > newest(folder.glob("*.py")) for folder in folders
    )


def keep_constants(folder: Path) -> None:
    """Keep them where Hypothesis looks for them."""
    # Hypothesis has no public API for this. If it changes, each worker parses for itself.
    with suppress(ImportError, AttributeError, TypeError):
        from hypothesis.configuration import storage_directory
        from hypothesis.internal.constants_ast import constants_from_module

        sources = sorted(folder.rglob("*.py"))
        if newest(storage_directory("constants").path.glob("*")) > newest(sources):
            return
        for path in sources:
            module = ModuleType(path.stem)
            module.__file__ = str(path)
            constants_from_module(module)


def newest(files: Iterable[Path]) -> int:
    return max((path.stat().st_mtime_ns for path in files), default=0)


def use_kernels() -> None:
    # Heavy imports, which are not needed where all is compiled.
    import pyarrow as pa

    import respool
    from respool.columnar.compiled_scan import CompiledScanner
    from respool.columnar.row_sum import row_sum
    from respool.rides.records import RecordMaker
    from respool.rides.ride_plan import RidePlan
    from respool.rides.ride_stream import RideStream
    from respool.testing import Broker

    CompiledScanner().prepare()
    row_sum(pa.array([b"key"]), pa.array([b"value"]))
    plan = RidePlan(seed=1, start_ms=START_MS, until_ms=START_MS + 3_600_000, count=10)
    rides = RecordMaker(plan.cities).make(next(RideStream(plan).history()))
    without_keys = pa.table({"key": pa.nulls(1, pa.binary()), "value": [b"value"]})
    with Broker(topics={"rides": 2, "plain": 1}) as broker:
        for name, rows in (("rides", rides), ("plain", without_keys)):
            respool.write_table(rows, name, bootstrap=broker.bootstrap)
            respool.read_table(name, bootstrap=broker.bootstrap)


if __name__ == "__main__":
    main()
