"""The state of share partitions at the share coordinator, here or on another broker.

Implements `SharePersister` for the leaders of partitions. What is asked for in one turn of the event loop goes
together: to the coordinators here as one request for each, to another broker as one for each group. Errors that pass
are retried; every operation may be repeated.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from respool.broker.coordinators.share_coordinators import ShareCoordinators, coordinator_name
from respool.broker.coordinators.state_operations import (
    DELETE,
    INITIALIZE,
    READ,
    SUMMARIZE,
    WRITE,
    StateOperation,
)
from respool.broker.peer_link import PeerLink
from respool.broker.peer_request_queue import PeerRequestQueue, Spawn
from respool.coordination.share.share_state import ShareKey, ShareState, ShareStateUpdate
from respool.coordination.share_states.share_state_requests import InitialState, StateSummary
from respool.model.coordinator_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from respool.model.error_codes import error_for
from respool.model.errors import NotEnoughReplicas, RequestError, RequestTimedOut
from respool.model.ids import BrokerId, LeaderEpoch
from respool.model.security.security_errors import ClusterAuthorizationFailed
from respool.ports.peers import PeerUnreachable

# These requests wait for disks, so nothing else shares their channel.
CHANNEL = 9
# Keeps a request well below the frame size limit.
QUESTIONS_PER_REQUEST = 1_000
FIRST_PAUSE_S = 0.01
PAUSE_S_MAX = 0.5

_TRANSIENT = (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    NotEnoughReplicas,
    RequestTimedOut,
    # The coordinator's broker has not yet seen that this one is registered.
    ClusterAuthorizationFailed,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _StateQuestion:
    operation: StateOperation
    key: ShareKey
    value: Any
    answer: "asyncio.Future[Any]"


class ShareStates:
    def __init__(
        self,
        coordinators: ShareCoordinators,
        *,
        me: BrokerId,
        link: PeerLink | None,
        sender_epoch: Callable[[], int | None],
        timeout_ms: int,
        spawn: Spawn,
    ) -> None:
        """`link` is None for a single broker; `sender_epoch` is this broker's epoch in the cluster."""
        self._coordinators = coordinators
        self._me = me
        self._link = link
        self._sender_epoch = sender_epoch
        self._timeout_s = timeout_ms / 1_000
        self._spawn = spawn
        # What the coordinators here are asked in this turn of the event loop.
        self._here: list[_StateQuestion] = []
        self._queue: PeerRequestQueue[_StateQuestion] = PeerRequestQueue(
            self._ask_peer, spawn=spawn, at_once_max=QUESTIONS_PER_REQUEST
        )

    async def read(self, key: ShareKey, leader_epoch: LeaderEpoch) -> ShareState:
        """See `SharePersister`."""
        state: ShareState = await self._ask(READ, key, leader_epoch)
        return state

    async def write(self, key: ShareKey, update: ShareStateUpdate) -> None:
        """See `SharePersister`."""
        await self._ask(WRITE, key, update)

    async def initialize(
        self, states: Mapping[ShareKey, InitialState]
    ) -> dict[ShareKey, RequestError | None]:
        """Give share partitions state; return an error for each that has none then. The topic is created if needed."""
        try:
            await self._coordinators.runtimes.ensure_topic()
        except RequestError as error:
            return dict.fromkeys(states, error)
        return await self._ask_for_all(INITIALIZE, states)

    async def delete(self, keys: Iterable[ShareKey]) -> dict[ShareKey, RequestError | None]:
        return await self._ask_for_all(DELETE, dict.fromkeys(keys))

    async def summarize(
        self, keys: Iterable[ShareKey]
    ) -> dict[ShareKey, StateSummary | RequestError]:
        return await self._ask_for_all(SUMMARIZE, dict.fromkeys(keys))

    async def _ask_for_all(
        self, operation: StateOperation, values: Mapping[ShareKey, Any]
    ) -> dict[ShareKey, Any]:
        answers = await asyncio.gather(
            *(self._ask(operation, key, value) for key, value in values.items()),
            return_exceptions=True,
        )
        results: dict[ShareKey, Any] = {}
        for key, answer in zip(values, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, RequestError):
                raise answer
            results[key] = answer
        return results

    async def _ask(self, operation: StateOperation, key: ShareKey, value: Any) -> Any:
        """Ask until there is an answer, or the time is over.

        Raises:
            RequestError: the answer, or the last reason why there is none.
        """
        error: RequestError = CoordinatorNotAvailable("the share coordinator was not asked")
        pause_s = FIRST_PAUSE_S
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    try:
                        return await self._ask_once(operation, key, value)
                    except _TRANSIENT as transient:
                        error = transient
                    await asyncio.sleep(pause_s)
                    pause_s = min(PAUSE_S_MAX, pause_s * 2)
        except TimeoutError:
            raise RequestTimedOut(
                f"the share coordinator did not answer within {self._timeout_s} s: {error}"
            ) from error

    def _ask_once(
        self, operation: StateOperation, key: ShareKey, value: Any
    ) -> "asyncio.Future[Any]":
        runtimes = self._coordinators.runtimes
        if not runtimes.has_topic:
            raise CoordinatorNotAvailable(f"there is no topic {runtimes.topic} yet")
        leader = runtimes.leader_of(coordinator_name(key)).id
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        question = _StateQuestion(operation=operation, key=key, value=value, answer=answer)
        if leader != self._me:
            self._queue.put(leader, question)
            return answer
        if not self._here:
            self._spawn(self._ask_here())
        self._here.append(question)
        return answer

    async def _ask_here(self) -> None:
        questions, self._here = self._here, []
        for operation, together in _by_operation(questions):
            self._spawn(self._ask_coordinators(operation, together))

    async def _ask_coordinators(
        self, operation: StateOperation, together: dict[ShareKey, list[_StateQuestion]]
    ) -> None:
        values = {key: asked[-1].value for key, asked in together.items()}
        _answer(together, await self._coordinators.ask(values, operation.request))

    async def _ask_peer(
        self, broker: BrokerId, waiting: list[_StateQuestion]
    ) -> Iterable[_StateQuestion]:
        wanted = [one for one in waiting if not one.answer.done()]
        await asyncio.gather(
            *(
                self._send(broker, operation, group, together)
                for operation, keys in _by_operation(wanted)
                for group, together in _by_group(keys)
            )
        )
        return ()

    async def _send(
        self,
        broker: BrokerId,
        operation: StateOperation,
        group: str,
        together: dict[ShareKey, list[_StateQuestion]],
    ) -> None:
        assert self._link is not None
        values = {key: asked[-1].value for key, asked in together.items()}
        results: dict[ShareKey, Any] = dict.fromkeys(
            together, CoordinatorNotAvailable(f"broker {broker} did not answer for the partition")
        )
        try:
            reply = await self._link.ask(
                broker,
                operation.api,
                operation.version,
                channel=CHANNEL,
                group_id=group,
                topics=operation.topics(values),
                sender_id=self._me,
                sender_epoch=self._sender_epoch() or 0,
            )
        except PeerUnreachable as unreachable:
            failed = CoordinatorNotAvailable(str(unreachable))
            _answer(together, dict.fromkeys(together, failed))
            return
        for topic in reply.results:
            for one in topic.partitions:
                key = ShareKey(group, topic.topic_id, one.partition)
                if key in values:
                    error = error_for(one.error_code, by=broker)
                    results[key] = error or operation.result(one, values[key])
        _answer(together, results)


def _by_operation(
    questions: Iterable[_StateQuestion],
) -> list[tuple[StateOperation, dict[ShareKey, list[_StateQuestion]]]]:
    """Questions about one share partition have one answer, that to the last: callers have dropped earlier ones."""
    found: dict[int, tuple[StateOperation, dict[ShareKey, list[_StateQuestion]]]] = {}
    for one in questions:
        _, keys = found.setdefault(one.operation.api, (one.operation, {}))
        keys.setdefault(one.key, []).append(one)
    return list(found.values())


def _by_group(
    keys: dict[ShareKey, list[_StateQuestion]],
) -> Iterable[tuple[str, dict[ShareKey, list[_StateQuestion]]]]:
    found: dict[str, dict[ShareKey, list[_StateQuestion]]] = {}
    for key, asked in keys.items():
        found.setdefault(key.group, {})[key] = asked
    return found.items()


def _answer(
    together: Mapping[ShareKey, list[_StateQuestion]], results: Mapping[ShareKey, Any]
) -> None:
    for key, asked in together.items():
        result = results[key]
        for one in asked:
            if one.answer.done():
                continue
            if isinstance(result, RequestError):
                one.answer.set_exception(result)
            else:
                one.answer.set_result(result)
