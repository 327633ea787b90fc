"""Memory copies and word reads for kernels.

A loop over bytes takes ten times as long, because each index might be negative. Bounds are not checked here.
"""

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from respool.columnar.compiled import Bytes, Word, kernel


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _memcpy(_typing: Any, target: Any, _at: Any, source: Any, _begin: Any, _count: Any) -> Any:
    signature = types.void(target, types.intp, source, types.intp, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, at, source, begin, count = arguments
        target = context.make_array(signature.args[0])(context, builder, target)
        source = context.make_array(signature.args[2])(context, builder, source)
        cgutils.raw_memcpy(
            builder,
            builder.gep(target.data, [at]),
            builder.gep(source.data, [begin]),
            count,
            1,
        )
        return context.get_dummy_value()

    return signature, generate


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _load_word(_typing: Any, source: Any, _at: Any) -> Any:
    signature = types.uint64(source, types.intp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, at = arguments
        source = context.make_array(signature.args[0])(context, builder, source)
        place = builder.gep(source.data, [at])
        word = builder.load(builder.bitcast(place, cgutils.ir.IntType(64).as_pointer()))
        # Unaligned.
        word.align = 1
        return word

    return signature, generate


@kernel
def read_word(source: Bytes, at: int) -> Word:
    """Read eight bytes as a number in the machine's byte order."""
    return _load_word(source, at)


@kernel
def copy_bytes(source: Bytes, begin: int, end: int, target: Bytes, at: int) -> int:
    """Copy source[begin:end] to target[at:]; return the end position. They must not overlap."""
    _memcpy(target, at, source, begin, end - begin)
    return at + end - begin
