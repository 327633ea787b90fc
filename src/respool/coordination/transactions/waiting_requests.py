"""Requests that wait until the markers of a transaction are written, up to a time limit.

Kafka rejects such requests at once with CONCURRENT_TRANSACTIONS, and clients retry after a pause that is longer than
writing the markers takes. Waiting requests are kept in memory only: a client that gets no reply retries.
"""

from collections import deque
from typing import NamedTuple, TypeAlias

from respool.coordination.decision import Ticket, TimerKey
from respool.coordination.draft import Draft
from respool.coordination.transactions.transaction_requests import (
    AddPartitions,
    AddPartitionsReply,
    EndTransaction,
    EndTransactionReply,
    InitProducerId,
    InitProducerIdReply,
)
from respool.model.coordinator_errors import ConcurrentTransactions

WAITING_TIMER: TimerKey = ("waiting for markers",)
# A producer has one or two requests in flight. More come from producers that fence each other, or from a faulty client.
WAITING_PER_ID_MAX = 32

WaitingRequest: TypeAlias = InitProducerId | AddPartitions | EndTransaction
_REPLIES = {
    InitProducerId: InitProducerIdReply,
    AddPartitions: AddPartitionsReply,
    EndTransaction: EndTransactionReply,
}


class Waiting(NamedTuple):
    ticket: Ticket
    request: WaitingRequest
    due_at_ms: int


class WaitingRequests:
    def __init__(self, *, hold_ms_max: int) -> None:
        self._hold_ms_max = hold_ms_max
        # In order of arrival.
        self._by_id: dict[str, dict[Ticket, Waiting]] = {}
        # By time, including some that no longer wait. Invariant: if it is not empty, the timer is set.
        self._queue: deque[Waiting] = deque()

    def add(self, request: WaitingRequest, ticket: Ticket, draft: Draft) -> None:
        """Let a request wait, or reject it if too many are waiting."""
        waiting = self._by_id.setdefault(request.transactional_id, {})
        if len(waiting) >= WAITING_PER_ID_MAX:
            _send_back(request, ticket, draft)
            return
        one = Waiting(ticket, request, draft.now_ms + self._hold_ms_max)
        waiting[ticket] = one
        if not self._queue:
            draft.set_timer(WAITING_TIMER, one.due_at_ms)
        self._queue.append(one)

    def take(self, transactional_id: str) -> tuple[Waiting, ...]:
        """Remove and return all requests that wait for the id's markers."""
        waiting = self._by_id.pop(transactional_id, None)
        return () if waiting is None else tuple(waiting.values())

    def put_back(self, one: Waiting) -> None:
        """Let a request wait again, with its original deadline."""
        self._by_id.setdefault(one.request.transactional_id, {})[one.ticket] = one

    def on_timer(self, draft: Draft) -> None:
        while self._queue and self._queue[0].due_at_ms <= draft.now_ms:
            one = self._queue.popleft()
            transactional_id = one.request.transactional_id
            waiting = self._by_id.get(transactional_id, {})
            if waiting.pop(one.ticket, None) is not None:
                _send_back(one.request, one.ticket, draft)
                if not waiting:
                    del self._by_id[transactional_id]
        if self._queue:
            draft.set_timer(WAITING_TIMER, self._queue[0].due_at_ms)


def _send_back(request: WaitingRequest, ticket: Ticket, draft: Draft) -> None:
    error = ConcurrentTransactions(
        f"markers of {request.transactional_id}'s last transaction are still being written"
    )
    draft.answer(ticket, _REPLIES[type(request)](error=error))
