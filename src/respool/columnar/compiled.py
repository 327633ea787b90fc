"""Compiles kernels: functions over numpy arrays that run as machine code, without the GIL.

The first process that calls a kernel compiles it, which takes seconds; the result is cached beside the source file, or
in the user's cache folder, and loaded in a fraction of a second by later processes.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

# numba imports it at every call; if two threads load it at the same time, they deadlock.
import numpy.ma
from numba import njit
from numpy.typing import NDArray

from respool.ports.record_scan import Buffer

# The arrays of kernels.
Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
# End positions in a column, in Arrow's type.
Places = NDArray[np.int32]
Words = NDArray[np.uint64]
# A Python or numpy number; 64 bits in a kernel.
Word: TypeAlias = Any

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile at the first call. Kernels use only their arguments, so they release the GIL."""
    return _compiled(function)


def part_of_kernels(function: F) -> F:
    """For functions called per element: inlined into each kernel that calls them."""
    return _compiled(function, forceinline=True)


def _compiled(function: F, **more: bool) -> F:
    # error_model: no exception for a division by zero, since kernels divide by constants only.
    # _nrt: kernels allocate no arrays, and callers hold theirs; reference counting took half of the time.
    options = {"nogil": True, "error_model": "numpy", "_nrt": False, **more}
    try:
        compiled: F = njit(cache=True, **options)(function)
    except RuntimeError:
        # There is no writable cache folder.
        return cast("F", njit(**options)(function))
    _recompile_on_change(compiled)
    return compiled


def _recompile_on_change(compiled: Any) -> None:
    """Recompile a cached kernel if any file of this package has changed.

    Numba checks the file that defines the kernel; but functions of other files are compiled into it.
    """
    # Numba has no public API for this. If it changes, kernels are cached in numba's way.
    with suppress(AttributeError):
        kept = compiled._cache._cache_file  # noqa: SLF001
        kept._source_stamp = (kept._source_stamp, package_stamp())  # noqa: SLF001


@cache
def package_stamp(folder: Path = Path(__file__).parent) -> tuple[tuple[str, int, int], ...]:
    """Changes with every source file of the folder."""
    found = [(path.name, path.stat()) for path in sorted(folder.glob("*.py"))]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)


def readable(data: Buffer) -> Bytes:
    """The bytes as an array for kernels, not copied. Always read-only: otherwise each kernel would be compiled
    twice.
    """
    array: Bytes = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array
