"""Work in another thread that must not be left to itself: whoever is cancelled meanwhile waits for its end first.

Else a log could be closed, or its files put aside, while a thread is still changing it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_uncancelled(work: Coroutine[Any, Any, T]) -> T:
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.gather(doing, return_exceptions=True)
        raise
