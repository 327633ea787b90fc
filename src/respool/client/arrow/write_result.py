"""The outcome of writing rows, per partition."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from respool.client.kafka.partition_queue import NO_OFFSET, BatchFate, ProducerBatch, QueueFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionWrite:
    """The outcome for the rows of one partition: how many were written, and their offsets.

    With an idempotent producer, the written rows come first; then those with an unknown outcome, then those not
    written.
    """

    rows: int = 0
    # None if the broker did not report it: acks=0, or a recognised duplicate.
    first_offset: int | None = None
    last_offset: int | None = None
    # Sent but not acknowledged: they may or may not have been written.
    uncertain_rows: int = 0
    not_in_rows: int = 0
    # The broker's error message.
    error: str | None = None

    def __str__(self) -> str:
        where = ""
        if self.first_offset is not None:
            where = f" (offsets {self.first_offset} to {self.last_offset})"
        parts = [f"{self.rows} in{where}"]
        if self.uncertain_rows:
            parts.append(f"{self.uncertain_rows} uncertain")
        if self.not_in_rows:
            parts.append(f"{self.not_in_rows} not in")
        if self.error:
            parts.append(self.error)
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The outcome of everything written since the last `flush`."""

    # All rows; the written ones; those with an unknown outcome.
    rows: int
    rows_in: int
    rows_uncertain: int
    # (topic, partition) -> its outcome. Rows that were not yet routed to a partition are missing.
    partitions: Mapping[tuple[str, int], PartitionWrite]

    @property
    def rows_not_in(self) -> int:
        return self.rows - self.rows_in - self.rows_uncertain

    def shortfall(self) -> str:
        """Describe the rows that were not written."""
        troubled = [
            f"{topic}/{number}: {one}"
            for (topic, number), one in self.partitions.items()
            if one.error or one.not_in_rows or one.uncertain_rows
        ]
        more = f"; and {len(troubled) - 5} partitions more" if len(troubled) > 5 else ""
        return (
            f"of {self.rows} rows {self.rows_in} are in, {self.rows_uncertain} are uncertain, "
            f"{self.rows_not_in} are not in: {'; '.join(troubled[:5])}{more}"
        )


@dataclass(slots=True)
class _Counts:
    rows: int = 0
    first: int = NO_OFFSET
    last: int = NO_OFFSET
    uncertain: int = 0
    not_in: int = 0


@dataclass(slots=True)
class Tally:
    """Counts finished batches until the next result is taken."""

    handed_over: int = 0
    _lines: dict[tuple[str, int], _Counts] = field(default_factory=dict)

    def add(self, place: tuple[str, int], batch: ProducerBatch) -> None:
        line = self._lines.setdefault(place, _Counts())
        match batch.fate:
            case BatchFate.IN:
                line.rows += batch.rows
                if batch.base_offset != NO_OFFSET:
                    # Not always in order: while the retry of an appended batch is refused, later batches may be
                    # acknowledged before it.
                    if line.first == NO_OFFSET or batch.base_offset < line.first:
                        line.first = batch.base_offset
                    line.last = max(line.last, batch.base_offset + batch.rows - 1)
            case BatchFate.UNCERTAIN:
                line.uncertain += batch.rows
            case _:
                line.not_in += batch.rows

    def result(self, failures: Mapping[tuple[str, int], QueueFailure]) -> WriteResult:
        partitions = {
            place: PartitionWrite(
                rows=line.rows,
                first_offset=None if line.first == NO_OFFSET else line.first,
                last_offset=None if line.last == NO_OFFSET else line.last,
                uncertain_rows=line.uncertain,
                not_in_rows=line.not_in,
                error=failures[place].message if place in failures else None,
            )
            for place, line in sorted(self._lines.items())
        }
        return WriteResult(
            rows=self.handed_over,
            rows_in=sum(one.rows for one in partitions.values()),
            rows_uncertain=sum(one.uncertain_rows for one in partitions.values()),
            partitions=partitions,
        )
