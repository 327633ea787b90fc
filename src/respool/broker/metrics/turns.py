"""Splits long work on the event loop into slices."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


async def in_turns(items: Iterable[Item], per_turn: int) -> AsyncIterator[list[Item]]:
    """Yield the items in slices of `per_turn`; the event loop runs in between."""
    left = iter(items)
    turn = list(islice(left, per_turn))
    while turn:
        yield turn
        turn = list(islice(left, per_turn))
        if turn:
            await asyncio.sleep(0)
