"""What a mirror reports: events as they happen, and snapshots of how far each topic is copied."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from respool.mirror.partition_copy import CopyState, PartitionCopy


class Severity(StrEnum):
    INFO = "info"
    # Something failed and is retried, or differs from the source.
    WARNING = "warning"
    # A retried operation succeeded.
    RECOVERED = "recovered"
    # A topic is no longer mirrored.
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class MirrorEvent:
    message: str
    severity: Severity = Severity.WARNING
    # What the operator should do about it; empty if nothing.
    hint: str = ""


OnEvent: TypeAlias = Callable[[MirrorEvent], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProgress:
    topic: str
    partition_count: int
    # The sum of the log ends of the copy's partitions.
    end: int
    # How many offsets the copy is behind the source, as far as known.
    lag: int
    # The state of the worst partition: stopped is worse than seeking, seeking than copying.
    state: CopyState
    # Why it is not being copied; empty if it is.
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    # Counts of this run.
    bytes_copied: int
    offsets_copied: int
    # Sorted by name.
    topics: tuple[TopicProgress, ...]
    # How many groups' offsets are copied; None before the first pass over the groups, and without `groups`.
    group_count: int | None

    @property
    def lag(self) -> int:
        """How many offsets the copies are behind, as far as known; `seeking` partitions may be further behind."""
        return sum(one.lag for one in self.topics)

    @property
    def partition_count(self) -> int:
        return sum(one.partition_count for one in self.topics)


def topic_progress(copies: Iterable[PartitionCopy]) -> tuple[TopicProgress, ...]:
    topics: dict[str, list[PartitionCopy]] = {}
    for one in copies:
        topics.setdefault(one.place[0], []).append(one)
    return tuple(_progress(name, ones) for name, ones in sorted(topics.items()))


_WORST_FIRST = (CopyState.STOPPED, CopyState.SEEKING, CopyState.COPYING)


def _progress(name: str, copies: list[PartitionCopy]) -> TopicProgress:
    worst = min(copies, key=lambda one: _WORST_FIRST.index(one.state))
    return TopicProgress(
        topic=name,
        partition_count=len(copies),
        end=sum(max(0, one.target_end) for one in copies),
        lag=sum(one.lag for one in copies),
        state=worst.state,
        why=worst.why,
    )
