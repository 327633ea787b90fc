"""Compiling a kernel: a function over numpy arrays that runs as machine code, without holding up other threads.

The first process to call a kernel compiles it, which takes seconds; the result is kept beside the source file, or in
the user's cache folder, and later processes load it in a fraction of a second.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

# numba asks for it at every call, and numpy loads it then: by two threads at once, that never ends.
import numpy.ma
from numba import njit
from numpy.typing import NDArray

from respool.ports.record_scan import Buffer

# What kernels work on.
Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
# Where things end in a column, as Arrow counts.
Places = NDArray[np.int32]
Words = NDArray[np.uint64]
# A number of Python's or numpy's; in a kernel both are 64 bits of the machine's.
Word: TypeAlias = Any

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile at the first call. Kernels see nothing but their arguments, so they give the interpreter free."""
    return _compiled(function)


def part_of_kernels(function: F) -> F:
    """The same for what is called for every number: it becomes a part of each kernel that calls it."""
    return _compiled(function, forceinline=True)


def _compiled(function: F, **more: bool) -> F:
    # error_model: a division by zero need not become an exception, for kernels divide by nothing that may be one.
    # _nrt: kernels make no arrays, and callers hold theirs; to count who uses them took half of the time.
    options = {"nogil": True, "error_model": "numpy", "_nrt": False, **more}
    try:
        compiled: F = njit(cache=True, **options)(function)
    except RuntimeError:
        # There is nowhere to keep the result: no folder that we may write to.
        return cast("F", njit(**options)(function))
    _recompile_on_change(compiled)
    return compiled


def _recompile_on_change(compiled: Any) -> None:
    """Have a kept kernel compiled anew when any file of this room has changed.

    Numba goes by the file that the kernel stands in; but what it calls is compiled into it, and stands in others.
    """
    # Numba has no door for this. Where one day it is not to be found, kernels are kept as numba does it.
    with suppress(AttributeError):
        kept = compiled._cache._cache_file  # noqa: SLF001
        kept._source_stamp = (kept._source_stamp, package_stamp())  # noqa: SLF001


@cache
def package_stamp(folder: Path = Path(__file__).parent) -> tuple[tuple[str, int, int], ...]:
    """Changes whenever one of the folder's source files does."""
    found = [(path.name, path.stat()) for path in sorted(folder.glob("*.py"))]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)


def readable(data: Buffer) -> Bytes:
    """The bytes for a kernel, not copied. Always read-only: else each kernel would be compiled for two kinds."""
    array: Bytes = np.frombuffer(data, dtype=np.uint8)
    array.flags.writeable = False
    return array
