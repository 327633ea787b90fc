"""Requests about several names: each goes to the coordinator of its name; replies come back in request order."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.broker.coordinators.runtimes import CoordinatorRuntimes
from respool.model.errors import RequestError

Item = TypeVar("Item")
Result = TypeVar("Result")


async def ask_each(
    runtimes: CoordinatorRuntimes,
    items: Sequence[Item],
    *,
    name_of: Callable[[Item], str],
    ask: Callable[[tuple[Item, ...]], Any],
    results_of: Callable[[Any], Sequence[Result]],
    refuse: Callable[[Item, RequestError], Result],
) -> list[Result]:
    """Answer each item, in the order given; where the coordinator fails, with what `refuse` makes of the error.

    `ask` makes one request of a coordinator's items, `results_of` takes its reply apart again.
    """
    results: dict[int, Result] = {}
    shares: dict[CoordinatorRuntime, list[int]] = {}
    for place, item in enumerate(items):
        try:
            runtime = runtimes.runtime_of(name_of(item))
        except RequestError as error:
            results[place] = refuse(item, error)
        else:
            shares.setdefault(runtime, []).append(place)

    async def ask_runtime(runtime: CoordinatorRuntime, places: list[int]) -> None:
        share = tuple(items[place] for place in places)
        try:
            answers = results_of(await runtime.ask(ask(share)))
        except RequestError as error:
            answers = [refuse(item, error) for item in share]
        results.update(zip(places, answers, strict=True))

    await asyncio.gather(*(ask_runtime(runtime, places) for runtime, places in shares.items()))
    return [results[place] for place in range(len(items))]
