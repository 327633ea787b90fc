"""What a coordinator's machine says back: records to write, answers to give once they are committed, timers to set.

The machine is pure and belongs to one partition of an internal topic. Its runtime (`broker/`) does, for each request:

1. `decide(request, ticket, now_ms, wall_ms)` -> a `Decision`. Nothing durable has changed yet.
2. append `records` as one batch, all or none, and `replay` each of them at once.
3. give each answer to the request that holds its ticket when everything appended so far is committed. A decision
   without records waits for what was appended before it: nobody is told of what could still be lost.
4. carry out the `effects` at the same moment: others may act on a decision only once it cannot be undone.

At start-up and after a failover the same `replay` is fed from the log. So what is durable changes by `replay` only;
what need not survive (who waits, when a member was last heard of) may change in `decide` and `on_timer`.

There are two times, both since 1970. `now_ms` goes steadily: timers, sessions and time-outs are by it, but it may be
wrong for as long as the broker runs. `wall_ms` goes into records, and may jump. What is lost for good when it is old
goes only when it is by both.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NewType, TypeAlias

from respool.model.ids import ProducerId

# Names the request an answer is for. The runtime gives it out; it may be answered much later, by another decision.
Ticket = NewType("Ticket", int)

# What a timer is for, such as ("session", group id, member id). Setting it again moves it.
TimerKey: TypeAlias = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorRecord:
    """A record of the internal topic, as bytes in Kafka's formats. Without a value it is a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    ticket: Ticket
    reply: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    key: TimerKey
    due_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    key: TimerKey


TimerChange: TypeAlias = SetTimer | CancelTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsProducer:
    """Whose transaction records are part of: they count when it is committed."""

    producer_id: ProducerId
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    records: tuple[CoordinatorRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    timers: tuple[TimerChange, ...] = field(default=())
    # None: the records count as soon as they are committed.
    producer: RecordsProducer | None = None
    # What the runtime is to do once the records are committed, such as writing a transaction's markers.
    effects: tuple[Any, ...] = ()
