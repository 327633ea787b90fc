"""Mistakes that retries may have, made on purpose. As `planted_bugs.py`; each with a seed that finds it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from respool.client.messages.message import Message
from respool.client.messages.retry import failure_decisions
from respool.client.messages.retry.failure_decisions import Retries
from respool.model.retry.failure_headers import FailureRecord
from respool.sim import retry_scenario
from respool.sim.clients.retrying_member import RetryingMember, Writes
from respool.sim.clients.transactional_producer import Way
from sim.planted_bugs import Plant


def offsets_are_committed_first(patch: pytest.MonkeyPatch) -> None:
    """In a transaction of their own, before what was made of the messages."""
    write_all = RetryingMember._write_all

    async def commit_and_write(self: RetryingMember, writes: Writes) -> Way:
        way = await self._write_offset(self.history.new_transaction(self.name))
        if way == "on":
            way = await self._persist(lambda: self._end(commit=True))
        self._added.clear()
        return await write_all(self, writes) if way == "on" else way

    patch.setattr(RetryingMember, "_write_all", commit_and_write)


def attempts_are_counted_in_memory(patch: pytest.MonkeyPatch) -> None:
    """A process that starts again knows of none."""
    attempts: dict[int, Counter[int]] = {}
    failure_of = Retries.failure_of

    def failure_in_memory(self: Retries, message: Message) -> FailureRecord | None:
        failure = failure_of(self, message)
        if failure is None:
            return None
        counts = attempts.setdefault(id(self), Counter())
        counts[failure.offset] += 1
        return FailureRecord(
            topic=failure.topic,
            partition=failure.partition,
            offset=failure.offset,
            group=failure.group,
            deliveries=counts[failure.offset] // 2,
        )

    patch.setattr(Retries, "failure_of", failure_in_memory)


def groups_are_names_of_topics(patch: pytest.MonkeyPatch) -> None:
    """The group's name is not escaped, and nobody can create its topics."""

    def retry_topic(group: str) -> str:
        return f"retry.{group}"

    patch.setattr(failure_decisions, "retry_topic", retry_topic)
    patch.setattr(retry_scenario, "retry_topic", retry_topic)


def a_retry_is_a_new_message(patch: pytest.MonkeyPatch) -> None:
    """Its headers say where it lies in the retry topic, and not where it comes from."""
    after = Retries._failure_after

    def failure_after(self: Retries, before: Any, message: Message, *more: Any) -> FailureRecord:
        failure = after(self, before, message, *more)
        return FailureRecord(
            topic=failure.topic,
            partition=failure.partition,
            offset=message.offset,
            group=failure.group,
            deliveries=failure.deliveries,
        )

    patch.setattr(Retries, "_failure_after", failure_after)


# The seed of a single broker that finds each.
RETRY_PLANTS: Mapping[Plant, int] = {
    offsets_are_committed_first: 20,
    attempts_are_counted_in_memory: 20,
    groups_are_names_of_topics: 23,
    a_retry_is_a_new_message: 20,
}
