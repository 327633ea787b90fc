"""What the broker knows of a query's writing: who writes, and which batch was decided last. Values only.

A sink is what one query writes to. Its state is one small record, changed by one process at a time (see `__init__`).
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from respool.spark.sink.errors import StateDamaged

NO_BATCH = -1
# How many ended runs are remembered. One that is older is refused for its batch, which is behind.
GONE_MAX = 20
_FORMAT = 1


class Transaction(NamedTuple):
    """Exactly one transaction: a transactional id has many, each with an epoch of its own."""

    transactional_id: str
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How much a task wrote, and a sum over it that does not depend on the order of rows."""

    rows: int = 0
    bytes: int = 0
    checksum: int = 0

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.bytes} bytes (checksum {self.checksum:016x})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one task adds to a batch: a transaction that is written and not ended."""

    task: int
    transaction: Transaction
    extent: Extent
    # It ended as it should, for certain.
    is_settled: bool = False
    # It was decided, and then aborted by time: its rows are missing.
    is_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a task needs to know, most of the time."""

    run: str
    batch: int
    has_lost: bool
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkState:
    # The run of the query that may write; every start of a query is a run.
    run: str = ""
    # Runs that may write no more, the latest last.
    gone: tuple[str, ...] = ()
    # The last batch that counts, how many tasks it had, and what they wrote.
    batch: int = NO_BATCH
    tasks: int = 0
    shares: tuple[Share, ...] = ()
    # A batch of this run that will never count, because it failed.
    given_up: int = NO_BATCH

    @property
    def summary(self) -> Summary:
        return Summary(run=self.run, batch=self.batch, has_lost=bool(self.lost), gone=self.gone)

    @property
    def lost(self) -> tuple[Share, ...]:
        return tuple(one for one in self.shares if one.is_lost)

    @property
    def unsettled(self) -> tuple[Share, ...]:
        return tuple(one for one in self.shares if not one.is_lost and not one.is_settled)

    def extent_of(self, task: int) -> Extent:
        return next((one.extent for one in self.shares if one.task == task), Extent())

    def taken_over_by(self, run: str) -> "SinkState":
        gone = (*self.gone, self.run)[-GONE_MAX:] if self.run else ()
        return replace(self, run=run, gone=gone, given_up=NO_BATCH)

    def settled(self, *, lost: Collection[Transaction] = ()) -> "SinkState":
        """All shares have ended: as they should, but for these."""
        return replace(
            self,
            shares=tuple(
                replace(one, is_lost=True)
                if one.is_lost or one.transaction in lost
                else replace(one, is_settled=True)
                for one in self.shares
            ),
        )

    def decided(self, batch: int, *, tasks: int, shares: Iterable[Share]) -> "SinkState":
        return replace(self, batch=batch, tasks=tasks, shares=tuple(shares))

    def repaired(self, again: Iterable[Share]) -> "SinkState":
        """What was lost was written again."""
        new = {one.task: one for one in again}
        shares = tuple(new.get(one.task, one) if one.is_lost else one for one in self.shares)
        return replace(self, shares=shares)

    def to_json(self) -> str:
        return json.dumps({"format": _FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "SinkState":
        """
        Raises:
            StateDamaged: this is not what `to_json` wrote.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            if fields.pop("format") != _FORMAT:
                raise StateDamaged(f"a sink's state of a newer version of Respool: {text[:100]!r}")
            shares = tuple(
                Share(
                    **{
                        **one,
                        "transaction": Transaction(*one["transaction"]),
                        "extent": Extent(**one["extent"]),
                    }
                )
                for one in fields.pop("shares")
            )
            return cls(**{**fields, "gone": tuple(fields["gone"])}, shares=shares)
        except (ValueError, KeyError, TypeError) as error:
            raise StateDamaged(f"no sink's state: {text[:100]!r}") from error
