"""A coordinator's decision: records to write, replies to send once they are committed, and timers to set.

A coordinator shard is pure and belongs to one partition of an internal topic. Its runtime (`broker/`) does the
following for each request:

1. calls `decide(request, ticket, now_ms, wall_ms)` -> a `Decision`. Nothing durable has changed yet.
2. appends `records` as one batch, all or none, and replays each of them at once with `replay`.
3. sends each reply to the request with its ticket once everything appended so far is committed. A decision without
   records waits for the records appended before it: no reply depends on records that could still be lost.
4. carries out the `effects` at the same time: others may act on a decision only once it cannot be undone.

At start-up and after a failover, the records in the log go through the same `replay`. So durable state changes only by
`replay`; volatile state (waiting requests, heartbeat times) may change in `decide` and `on_timer`.

There are two clocks, both in ms since 1970. `now_ms` is monotonic: timers, sessions and timeouts use it, but
it may differ from the real time for as long as the broker runs. `wall_ms` goes into records, and may jump.
State whose expiry cannot be undone expires only when both clocks say so.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, NewType, TypeAlias

from respool.model.ids import ProducerId

# Identifies a request. The runtime assigns it; the reply to it may come much later, from another decision.
Ticket = NewType("Ticket", int)

# What a timer is for, such as ("session", group id, member id). Setting the same key again moves the timer.
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
    """The transaction that the records are part of: they take effect when it is committed."""

    producer_id: ProducerId
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    records: tuple[CoordinatorRecord, ...] = ()
    answers: tuple[Answer, ...] = ()
    timers: tuple[TimerChange, ...] = field(default=())
    # None: the records take effect as soon as they are committed.
    producer: RecordsProducer | None = None
    # Actions for the runtime once the records are committed, such as writing transaction markers.
    effects: tuple[Any, ...] = ()
