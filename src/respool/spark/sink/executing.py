"""Runs the steps of `protocol.py` against brokers."""

import re
import time
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from respool.client.arrow.prepared import PreparedTransaction
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    TransactionFenced,
    TransactionLost,
    UnknownTopic,
    Untrusted,
)
from respool.client.kafka.transactions import (
    ONGOING,
    TransactionDescription,
    TransactionOutcome,
    describe_transaction,
    end_transaction,
    outcome_of,
    transactions_at,
)
from respool.spark.sink.errors import DeciderFenced
from respool.spark.sink.names import STATE_TOPIC, tasks_of
from respool.spark.sink.protocol_steps import (
    BecomeDecider,
    Effect,
    End,
    ListOpen,
    Look,
    Outcome,
    ReadState,
    ReadSummary,
    Seen,
    Wait,
    WriteState,
)
from respool.spark.sink.state import TaskTransaction
from respool.spark.sink.state_store import StateStore

# A transaction that has less than this share of its timeout left is not decided any more.
TIME_LEFT_SHARE = 0.05
TIME_LEFT_MS_MAX = 20_000
_THREADS = 8

R = TypeVar("R")
T = TypeVar("T")


class SinkBroker:
    """Carries out the protocol's effects for one sink."""

    def __init__(self, cluster: Cluster, sink: str) -> None:
        self._cluster = cluster
        self._sink = sink
        self._store = StateStore(cluster, sink)

    def run(self, steps: Generator[Effect, Any, R]) -> R:
        """
        Raises:
            SinkError: raised by the steps.
            BrokerUnreachable, BrokerRefused: a request failed, and the steps stop there.
        """
        try:
            effect = next(steps)
            while True:
                try:
                    answer = self.answer(effect)
                except DeciderFenced as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as stop:
            result: R = stop.value
            return result

    def answer(self, effect: Effect) -> Any:  # noqa: PLR0911 - one for each.
        match effect:
            case ReadSummary():
                return self._store.summary()
            case ReadState():
                return self._store.state()
            case BecomeDecider():
                return self._store.become_decider()
            case WriteState(token=token, state=state):
                return self._store.write(token, state)
            case ListOpen(but=known):
                names = {one.transactional_id for one in known}
                return open_transactions(self._cluster, tasks_of(self._sink), but=names)
            case Look(transactions=transactions):
                return each(transactions, lambda one: seen_of(self._cluster, one))
            case End(transactions=transactions, is_commit=is_commit):
                return end_all(self._cluster, transactions, is_commit=is_commit)
            case Wait(seconds=seconds):
                return self._cluster.sleep(seconds)


def end_all(
    cluster: Cluster, transactions: Sequence[TaskTransaction], *, is_commit: bool
) -> tuple[Outcome, ...]:
    return each(transactions, lambda one: end(cluster, one, is_commit=is_commit))


def end(cluster: Cluster, transaction: TaskTransaction, *, is_commit: bool) -> Outcome:
    """Commit or abort a transaction; may be repeated.

    Raises:
        BrokerUnreachable, Untrusted: no answer came, or TLS or the login failed.
    """
    coordinator = _coordinator(cluster, transaction.transactional_id)
    # Try this first: the coordinator recognises a repeated EndTxn even after the id's state has moved on.
    try:
        end_transaction(coordinator, _prepared(transaction), is_commit=is_commit)
    except (TransactionFenced, TransactionLost):
        pass
    except BrokerRefused as error:
        if error.code != Code.transactional_id_not_found:
            raise
    else:
        return Outcome.DONE
    found = outcome_of(coordinator, _prepared(transaction))[0]
    if found is TransactionOutcome.OPEN or found is TransactionOutcome.UNKNOWN:
        return Outcome.UNKNOWN
    return (
        Outcome.DONE if is_commit == (found is TransactionOutcome.COMMITTED) else Outcome.OTHERWISE
    )


def is_committed(cluster: Cluster, transaction: TaskTransaction) -> bool:
    coordinator = _coordinator(cluster, transaction.transactional_id)
    return outcome_of(coordinator, _prepared(transaction))[0] is TransactionOutcome.COMMITTED


def seen_of(cluster: Cluster, transaction: TaskTransaction) -> Seen:
    coordinator = _coordinator(cluster, transaction.transactional_id)
    found, seen = outcome_of(coordinator, _prepared(transaction))
    if found is not TransactionOutcome.OPEN or seen is None or seen.state != ONGOING:
        return Seen(is_open=False, state=found.value)
    return Seen(is_open=True, has_time=has_time(seen, now_ms=time.time_ns() // 1_000_000))


def has_time(seen: TransactionDescription, *, now_ms: int) -> bool:
    """Whether enough time is left before its timeout, by this machine's clock."""
    assert seen.started_ms is not None
    age_ms = now_ms - seen.started_ms
    if age_ms >= seen.timeout_ms:
        # It is still open, so the two clocks disagree, and the time left is unknown.
        return True
    left_ms = seen.timeout_ms - age_ms
    return left_ms >= min(seen.timeout_ms * TIME_LEFT_SHARE, TIME_LEFT_MS_MAX)


def open_transactions(
    cluster: Cluster, wanted: re.Pattern[str], *, but: Collection[str] = ()
) -> tuple[TaskTransaction, ...]:
    """Open transactions with matching ids, except `but`. Skips silent brokers: a later call may list theirs."""
    names = transactional_ids(cluster, wanted, states=(ONGOING,)).difference(but)
    seen = each(sorted(names), lambda name: _describe(cluster, name))
    return tuple(one for one in seen if one is not None)


def transactional_ids(
    cluster: Cluster, wanted: re.Pattern[str], *, states: Sequence[str], is_all: bool = False
) -> set[str]:
    """Matching transactional ids in these states. With `is_all` every broker must answer, with retries.

    Raises:
        BrokerRefused
        BrokerUnreachable: with `is_all`, a broker did not answer within the retry limit.
    """

    def ask() -> set[str]:
        with suppress(UnknownTopic):
            # A Metadata reply for any topic also lists the brokers.
            cluster.refresh(STATE_TOPIC)
        names: set[str] = set()
        for broker in cluster.brokers:
            try:
                listed = transactions_at(cluster, broker, states=states)
                names |= {one.transactional_id for one in listed}
            except (BrokerUnreachable, Untrusted):
                if is_all:
                    raise
            except BrokerRefused as error:
                if is_all or not error.retriable:
                    raise
        return names

    return {name for name in cluster.retrying(ask) if wanted.fullmatch(name)}


def _describe(cluster: Cluster, name: str) -> TaskTransaction | None:
    try:
        seen = describe_transaction(_coordinator(cluster, name), name)
    except BrokerRefused as error:
        if error.code == Code.transactional_id_not_found:
            return None
        raise
    if seen.state != ONGOING:
        return None
    return TaskTransaction(name, seen.producer_id, seen.producer_epoch)


def _coordinator(cluster: Cluster, name: str) -> Coordinator:
    return Coordinator(cluster, name, is_transaction=True)


def _prepared(transaction: TaskTransaction) -> PreparedTransaction:
    return PreparedTransaction(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        epoch=transaction.epoch,
    )


def each(things: Sequence[T], do: Callable[[T], R]) -> tuple[R, ...]:
    """Apply `do` to each, several at a time."""
    if len(things) <= 1:
        return tuple(do(one) for one in things)
    with ThreadPoolExecutor(min(_THREADS, len(things)), "respool-sink") as pool:
        return tuple(pool.map(do, things))
