"""What the steps of `protocol.py` ask for, and what they are answered."""

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from respool.spark.sink.state import SinkState, Transaction


@dataclass(frozen=True, slots=True)
class ReadSummary:
    """-> Summary | None, at once: of the state as it was before a change that has not come to its end everywhere.

    It may be one whose decider has died in the middle. To wait for that would take as long as its timeout.
    """


@dataclass(frozen=True, slots=True)
class ReadState:
    """-> SinkState | None. Only after `BecomeDecider`, which brings all changes to an end."""


@dataclass(frozen=True, slots=True)
class BecomeDecider:
    """-> a token for `WriteState`. Whoever had one before fails; what they had begun to write is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteState:
    """-> None, once it is durable. Raises `DeciderFenced` if another became the decider; then it is not written."""

    token: Any
    state: SinkState


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOpen:
    """-> tuple[Transaction, ...]: all that tasks of this sink have open, but for those with ids of these."""

    but: tuple[Transaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """-> tuple[Seen, ...], one for each."""

    transactions: tuple[Transaction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """-> tuple[Outcome, ...], one for each. Doing it again is fine."""

    transactions: tuple[Transaction, ...]
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """-> None"""

    seconds: float


Effect: TypeAlias = (
    ReadSummary | ReadState | BecomeDecider | WriteState | ListOpen | Look | End | Wait
)


class Outcome(Enum):
    # It has ended as asked for, now or before.
    DONE = "done"
    # It has ended the other way.
    OTHERWISE = "otherwise"
    # Its id was used again since.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    is_open: bool
    # Whether it would outlive what is still to be done.
    has_time: bool = True
    state: str = ""
