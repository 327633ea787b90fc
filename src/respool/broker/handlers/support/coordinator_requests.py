"""Requests to the coordinators of groups and transactions on this broker."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.broker.coordinators.runtimes import CoordinatorRuntimes
from respool.broker.outcome import Pipelined, Reply
from respool.model.errors import RequestError

Item = TypeVar("Item")
Result = TypeVar("Result")
# Encodes the coordinator's answer, or the error that prevented one.
Encode = Callable[[Any], Reply]


def ask_coordinator(
    runtimes: CoordinatorRuntimes,
    name: str,
    question: Any,
    encode: Encode,
    *,
    refusal: RequestError | None = None,
) -> Reply | Pipelined:
    """Ask the coordinator of `name`. The request takes effect immediately; only its reply waits for the commit.

    So the connection's next request may start. One tool relies on this: it sends LeaveGroup for all members and then
    OffsetCommit without waiting, and no member can join in between.

    `refusal`: the client may not ask it.
    """
    if refusal is not None:
        return encode(refusal)
    try:
        answer = runtimes.ask(name, question)
    except RequestError as error:
        return encode(error)
    if answer.done():
        return encode(_result(answer))
    outcome = Pipelined()
    answer.add_done_callback(lambda done: outcome.complete(encode(_result(done))))
    return outcome


def _result(answer: "asyncio.Future[Any]") -> Any:
    error = answer.exception()
    if error is None:
        return answer.result()
    assert isinstance(error, RequestError), error
    return error


async def ask_coordinators(
    runtimes: CoordinatorRuntimes,
    items: Sequence[Item],
    *,
    name_of: Callable[[Item], str],
    ask: Callable[[tuple[Item, ...]], Any],
    results_of: Callable[[Any], Sequence[Result]],
    refuse: Callable[[Item, RequestError], Result],
    check: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """Ask the coordinator of each item, and return one result per item in the order of `items`.

    `ask` builds one request from all items of a coordinator, `results_of` splits its reply, and `refuse` builds the
    result of an item whose coordinator failed. `check` raises the error of a name about which the client may not ask.
    """
    results: dict[int, Result] = {}
    batches: dict[CoordinatorRuntime, list[int]] = {}
    for index, item in enumerate(items):
        try:
            check(name_of(item))
            runtime = runtimes.runtime_of(name_of(item))
        except RequestError as error:
            results[index] = refuse(item, error)
        else:
            batches.setdefault(runtime, []).append(index)

    async def ask_runtime(runtime: CoordinatorRuntime, indexes: list[int]) -> None:
        batch = tuple(items[index] for index in indexes)
        try:
            answers = results_of(await runtime.ask(ask(batch)))
        except RequestError as error:
            answers = [refuse(item, error) for item in batch]
        results.update(zip(indexes, answers, strict=True))

    await asyncio.gather(*(ask_runtime(runtime, indexes) for runtime, indexes in batches.items()))
    return [results[index] for index in range(len(items))]
