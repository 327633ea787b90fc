"""Ask about several names at once: each goes to the shard that looks after it, and the answers are put in order."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from respool.broker.shard import Shard
from respool.broker.shards import Shards
from respool.model.errors import RequestError

Item = TypeVar("Item")
Result = TypeVar("Result")


async def ask_each(
    shards: Shards,
    items: Sequence[Item],
    *,
    name_of: Callable[[Item], str],
    ask: Callable[[tuple[Item, ...]], Any],
    results_of: Callable[[Any], Sequence[Result]],
    refuse: Callable[[Item, RequestError], Result],
) -> list[Result]:
    """Answer each item, in the order given; one whose shard cannot be asked gets what `refuse` makes of the error.

    `ask` makes one request of a shard's items, `results_of` takes its reply apart again.
    """
    results: dict[int, Result] = {}
    shares: dict[Shard, list[int]] = {}
    for place, item in enumerate(items):
        try:
            shard = shards.shard_of(name_of(item))
        except RequestError as error:
            results[place] = refuse(item, error)
        else:
            shares.setdefault(shard, []).append(place)

    async def ask_shard(shard: Shard, places: list[int]) -> None:
        share = tuple(items[place] for place in places)
        try:
            answers = results_of(await shard.ask(ask(share)))
        except RequestError as error:
            answers = [refuse(item, error) for item in share]
        results.update(zip(places, answers, strict=True))

    await asyncio.gather(*(ask_shard(shard, places) for shard, places in shares.items()))
    return [results[place] for place in range(len(items))]
