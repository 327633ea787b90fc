"""Requests to a coordinator that have their effects at once, and wait only until those are safe.

The connection's next request may go ahead meanwhile. A tool relies on it that sends LeaveGroup for all members and
OffsetCommit in one go: no member comes in between.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from respool.broker.coordinators.runtimes import CoordinatorRuntimes
from respool.broker.outcome import Pipelined, Reply
from respool.model.errors import RequestError

# Makes a reply of the machine's answer, or of the error that kept it from answering.
Encode = Callable[[Any], Reply]


def reply_when_answered(
    runtimes: CoordinatorRuntimes, name: str, question: Any, encode: Encode
) -> Reply | Pipelined:
    try:
        answer = runtimes.ask(name, question)
    except RequestError as error:
        return encode(error)
    if answer.done():
        return encode(_result(answer))
    outcome = Pipelined()
    answer.add_done_callback(lambda done: outcome.settle(encode(_result(done))))
    return outcome


def _result(answer: "asyncio.Future[Any]") -> Any:
    error = answer.exception()
    if error is None:
        return answer.result()
    assert isinstance(error, RequestError), error
    return error
