"""The state of a query's writes, as stored in the broker: the current run, and the last decided batch. Values only.

A sink is the target of one query's writes. Its state is one small record, changed by one process at a time (see
`__init__`).
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from respool.spark.sink.errors import StateDamaged

NO_BATCH = -1
# How many ended runs are remembered. An older one is refused for its batch, which is behind.
GONE_MAX = 20
_FORMAT = 1
# The names of these fields in the stored text, which other releases read and write too.
_STORED_NAMES = {"failed_batch": "given_up", "is_resolved": "is_settled"}
_FIELD_NAMES = {stored: name for name, stored in _STORED_NAMES.items()}


class TaskTransaction(NamedTuple):
    """A single transaction: a transactional id has many, each with its own epoch."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much a task wrote, with a checksum that does not depend on the order of rows."""

    rows: int = 0
    bytes: int = 0
    checksum: int = 0

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.bytes} bytes (checksum {self.checksum:016x})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One task's part of a batch: a transaction that is written but not ended."""

    task: int
    transaction: TaskTransaction
    extent: Extent
    # It certainly ended as decided.
    is_resolved: bool = False
    # It was decided, but then aborted by its timeout: its rows are missing.
    is_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The part of the state that most tasks need."""

    run: str
    batch: int
    has_lost: bool
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkState:
    # The current run of the query; every start of a query is a run.
    run: str = ""
    # Runs that may not write any more, the latest last.
    gone: tuple[str, ...] = ()
    # The last batch that counts, its number of tasks, and what they wrote.
    batch: int = NO_BATCH
    tasks: int = 0
    shares: tuple[Share, ...] = ()
    # A batch of this run that will never count, because it failed.
    failed_batch: int = NO_BATCH

    @property
    def summary(self) -> Summary:
        return Summary(run=self.run, batch=self.batch, has_lost=bool(self.lost), gone=self.gone)

    @property
    def lost(self) -> tuple[Share, ...]:
        return tuple(one for one in self.shares if one.is_lost)

    @property
    def unresolved(self) -> tuple[Share, ...]:
        return tuple(one for one in self.shares if not one.is_lost and not one.is_resolved)

    def extent_of(self, task: int) -> Extent:
        return next((one.extent for one in self.shares if one.task == task), Extent())

    def taken_over_by(self, run: str) -> "SinkState":
        gone = (*self.gone, self.run)[-GONE_MAX:] if self.run else ()
        return replace(self, run=run, gone=gone, failed_batch=NO_BATCH)

    def resolved(self, *, lost: Collection[TaskTransaction] = ()) -> "SinkState":
        """Mark all shares as ended: as decided, or as lost if in `lost`."""
        return replace(
            self,
            shares=tuple(
                replace(one, is_lost=True)
                if one.is_lost or one.transaction in lost
                else replace(one, is_resolved=True)
                for one in self.shares
            ),
        )

    def decided(self, batch: int, *, tasks: int, shares: Iterable[Share]) -> "SinkState":
        return replace(self, batch=batch, tasks=tasks, shares=tuple(shares))

    def repaired(self, again: Iterable[Share]) -> "SinkState":
        """Replace the lost shares by those written again."""
        new = {one.task: one for one in again}
        shares = tuple(new.get(one.task, one) if one.is_lost else one for one in self.shares)
        return replace(self, shares=shares)

    def to_json(self) -> str:
        fields = _renamed(asdict(self), _STORED_NAMES)
        fields["shares"] = [_renamed(one, _STORED_NAMES) for one in fields["shares"]]
        return json.dumps({"format": _FORMAT, **fields}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "SinkState":
        """
        Raises:
            StateDamaged: the text was not written by `to_json`.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop("format") != _FORMAT:
                raise StateDamaged(f"a sink's state of a newer version of Respool: {text[:100]!r}")
            fields = _renamed(fields, _FIELD_NAMES)
            shares = tuple(
                Share(
                    **{
                        **_renamed(one, _FIELD_NAMES),
                        "transaction": TaskTransaction(*one["transaction"]),
                        "extent": Extent(**one["extent"]),
                    }
                )
                for one in fields.pop("shares")
            )
            return cls(**{**fields, "gone": tuple(fields["gone"])}, shares=shares)
        except (ValueError, KeyError, TypeError) as error:
            raise StateDamaged(f"no sink's state: {text[:100]!r}") from error


def _renamed(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in {**fields}.items()}
