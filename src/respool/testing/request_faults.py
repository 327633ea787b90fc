"""Faults in replies: they come late, never, or contain an error. They occur on the broker's event loop.

A fault applies to requests of one API, and optionally only to those that name a topic or have a client id. It occurs a
number of times, or until it is cleared.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from respool.broker.broker import Broker
from respool.broker.dispatch import handle
from respool.broker.outcome import NO_REPLY, CloseConnection, Outcome, Pipelined, Reply
from respool.testing.errors import UnknownFault
from respool.wire.api_table import API_TABLE, Api, ApiSpec
from respool.wire.codec import Request
from respool.wire.injected_error import NoPlaceForError, encode_error_reply
from respool.wire.reply_errors import error_code_named

Kind = Literal["delay", "lose", "error"]


@dataclass(slots=True, kw_only=True, eq=False)
class _Rule:
    number: int
    kind: Kind
    api: ApiSpec
    topic: str | None
    client_id: str | None
    # How often it will still occur; None: until it is cleared.
    times: int | None
    # The delay; None: until it is cleared.
    seconds: float | None
    # The error code.
    code: int
    struck: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)


class RequestFaults:
    def __init__(self) -> None:
        self._rules: dict[int, _Rule] = {}
        self._numbers = count(1)
        # The broker has crashed: connections that are still accepted get no reply.
        self.is_down = False

    def inject(
        self,
        kind: Kind,
        *,
        api: str,
        topic: str | None,
        client_id: str | None,
        times: int | None,
        seconds: float | None = None,
        error: str | int = 0,
    ) -> int:
        """Inject a fault from now on, and return its number.

        Raises:
            UnknownFault: there is no such API or error.
        """
        spec = _api_named(api)
        if topic is not None and spec.key == Api.FETCH:
            raise UnknownFault(
                "a Fetch session names its topics once, in its first request: leave topic out, or name a client_id"
            )
        rule = _Rule(
            number=next(self._numbers),
            kind=kind,
            api=spec,
            topic=topic,
            client_id=client_id,
            times=times,
            seconds=seconds,
            code=_code_of(error) if kind == "error" else 0,
        )
        self._rules[rule.number] = rule
        return rule.number

    def clear(self, number: int) -> None:
        """End the fault, and send the replies it holds."""
        self._rules[number].times = 0
        self._rules[number].released.set()

    def clear_all(self) -> None:
        for number in self._rules:
            self.clear(number)

    def struck(self, number: int) -> int:
        return self._rules[number].struck

    def release_held(self) -> None:
        """Send held replies now, because a stopping broker would wait for them."""
        for rule in self._rules.values():
            rule.released.set()
            if rule.times != 0:
                rule.released = asyncio.Event()

    def handle(self, request: Request, broker: Broker) -> Outcome:
        """Return the broker's own outcome, unless a fault applies."""
        if self.is_down:
            raise CloseConnection("the broker is down")
        for rule in self._rules.values():
            if _matches(rule, request, broker):
                rule.struck += 1
                if rule.times is not None:
                    rule.times -= 1
                return _strike(rule, request, broker)
        return handle(request, broker)


def _matches(rule: _Rule, request: Request, broker: Broker) -> bool:
    if rule.times == 0 or request.api.key != rule.api.key:
        return False
    if rule.client_id is not None and request.client_id != rule.client_id:
        return False
    return rule.topic is None or rule.topic in _topics_of(request.body, broker)


def _strike(rule: _Rule, request: Request, broker: Broker) -> Outcome:
    if rule.kind == "error":
        if getattr(request.body, "acks", None) == 0:
            raise CloseConnection("the test wants an error, and the client takes no reply")
        try:
            return [encode_error_reply(request, rule.code)]
        except NoPlaceForError as error:
            raise CloseConnection(str(error)) from error
    outcome = handle(request, broker)
    return _lose(outcome) if rule.kind == "lose" else _delay(rule, outcome)


async def _lose(outcome: Outcome) -> Reply:
    """Execute the request, and close the connection instead of replying."""
    await _reply_of(outcome)
    raise CloseConnection("the reply is lost, as the test wants it")


async def _delay(rule: _Rule, outcome: Outcome) -> Reply:
    reply = await _reply_of(outcome)
    try:
        # Measured in the broker's time, so advancing the clock releases the reply.
        async with asyncio.timeout(rule.seconds):
            await rule.released.wait()
    except TimeoutError:
        pass
    return reply


async def _reply_of(outcome: Outcome) -> Reply:
    if isinstance(outcome, Pipelined):
        return await outcome.wait()
    if isinstance(outcome, Coroutine):
        found: Reply = await outcome
        return found
    return outcome or NO_REPLY


def _topics_of(body: Any, broker: Broker) -> set[str]:
    """The topics a request names, by name or by id."""
    by_id: dict[Any, str] | None = None
    names = set()
    for one in (*(getattr(body, "topic_data", None) or ()), *(getattr(body, "topics", None) or ())):
        name = one if isinstance(one, str) else getattr(one, "name", getattr(one, "topic", None))
        if name is None:
            by_id = by_id or {
                topic_id: topic.name
                for known in (broker.image.topics_by_id, broker.image.views_by_id)
                for topic_id, topic in known.items()
            }
            name = by_id.get(one.topic_id)
        if name is not None:
            names.add(name)
    return names


def _api_named(name: str) -> ApiSpec:
    wanted = name.replace("_", "").replace("-", "").lower()
    for spec in API_TABLE.values():
        if spec.name.lower() == wanted:
            return spec
    known = ", ".join(sorted(spec.name for spec in API_TABLE.values()))
    raise UnknownFault(f"there is no API {name!r}; there are {known}")


def _code_of(error: str | int) -> int:
    if isinstance(error, int):
        code: int | None = error
    else:
        code = error_code_named(error)
    if not code:
        raise UnknownFault(
            f"{error!r} is not an error of Kafka; names look like NOT_LEADER_OR_FOLLOWER"
        )
    return code
