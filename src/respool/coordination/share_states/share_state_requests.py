"""Requests and replies of the share coordinator, each about many share partitions; an error is for one of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from respool.coordination.share.share_state import ShareKey, ShareState, ShareStateUpdate
from respool.model.errors import RequestError
from respool.model.ids import LeaderEpoch, Offset


class InitialState(NamedTuple):
    # 0: only if there is no state yet. Otherwise it replaces a state with a lower epoch.
    state_epoch: int
    # An offset, or UNDECIDED_START.
    start_offset: Offset


class StateSummary(NamedTuple):
    state_epoch: int
    leader_epoch: LeaderEpoch
    start_offset: Offset
    finished_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeStates:
    states: Mapping[ShareKey, InitialState]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStates:
    """The leader of a partition, at this epoch, begins: older leaders write no more."""

    leader_epochs: Mapping[ShareKey, LeaderEpoch]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStates:
    updates: Mapping[ShareKey, ShareStateUpdate]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStates:
    keys: frozenset[ShareKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizeStates:
    keys: frozenset[ShareKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesChanged:
    """The reply to InitializeStates, WriteStates and DeleteStates: None for each that is done."""

    results: Mapping[ShareKey, RequestError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesRead:
    results: Mapping[ShareKey, ShareState | RequestError]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesSummarized:
    results: Mapping[ShareKey, StateSummary | RequestError]


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneTo:
    """Effect: no share partition needs the records of this partition of the log before the offset."""

    offset: Offset


StateRequest: TypeAlias = (
    InitializeStates | ReadStates | WriteStates | DeleteStates | SummarizeStates
)
StateReply: TypeAlias = StatesChanged | StatesRead | StatesSummarized
