"""The effects that the steps of `protocol.py` yield, and the types of their answers."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from respool.spark.sink.state import SinkState, TaskTransaction


@dataclass(frozen=True, slots=True)
class ReadSummary:
    """-> Summary | None, without waiting: it may miss a change that is in progress.

    The decider of that change may have died; waiting for it would take up to its timeout.
    """


@dataclass(frozen=True, slots=True)
class ReadState:
    """-> SinkState | None. Only after `BecomeDecider`, which completes or aborts every change in progress."""


@dataclass(frozen=True, slots=True)
class BecomeDecider:
    """-> a token for `WriteState`. Previous deciders are fenced, and their changes in progress completed or aborted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteState:
    """-> None, once it is durable. Raises `DeciderFenced`, without writing, if another process became the decider."""

    token: Any
    state: SinkState


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOpen:
    """-> tuple[TaskTransaction, ...]: all open transactions of this sink's tasks, except those with ids in `but`."""

    but: tuple[TaskTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """-> tuple[Seen, ...], one for each transaction."""

    transactions: tuple[TaskTransaction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """-> tuple[Outcome, ...], one for each transaction. May be repeated."""

    transactions: tuple[TaskTransaction, ...]
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """-> None"""

    seconds: float


Effect: TypeAlias = (
    ReadSummary | ReadState | BecomeDecider | WriteState | ListOpen | Look | End | Wait
)


class Outcome(Enum):
    # It has ended as requested, now or before.
    DONE = "done"
    # It has ended the other way.
    OTHERWISE = "otherwise"
    # Its id has been used again since.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    is_open: bool
    # Whether enough time is left before its timeout.
    has_time: bool = True
    state: str = ""
