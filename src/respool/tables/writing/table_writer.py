"""Writes one topic into its table: each round reads the records that the table lacks, and commits them with the
positions.

A round begins at the table's own positions, so earlier writers and their crashes do not matter. During a backfill,
each full file is committed at once; the end of a round commits the remaining files together.

Rejected records are committed to `<name>__rejected` first, under positions of its own: if the process dies in between,
the range is read again, and records that are already in that table are skipped.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from respool.model.tables.table_settings import OnBadRecord, OnGap, TableSettings
from respool.tables.errors import ForeignTable, RecordRejected, TableAltered, TableConflict
from respool.tables.formats.table_log import TableLog, TableState
from respool.tables.layout import OFFSET, Layout
from respool.tables.planning.positions import Lacking, TopicRange, lacking
from respool.tables.values.value_decoder import DecodedValues, ValueDecoder
from respool.tables.writing.part_files import PartFiles
from respool.tables.writing.range_commits import Committer, FinishedRange
from respool.tables.writing.row_shaper import rejected_rows, shape_rows
from respool.tables.writing.topic_source import SourcePiece, TopicSource

_log = logging.getLogger("respool.tables")
MIB = 1024 * 1024
REJECTED_BYTES_MAX = 16 * MIB


@dataclass(slots=True, kw_only=True)
class RoundResult:
    rows: int = 0
    files: int = 0
    rejected: int = 0
    commits: int = 0
    # Partitions whose offsets another writer had committed first.
    overtaken: int = 0
    gaps: int = 0


@dataclass(slots=True, kw_only=True)
class _Progress:
    """One partition in a round: rows of the offsets [begin, next) are in open files."""

    begin: int
    next: int
    rejected: list[pa.RecordBatch] = field(default_factory=list)

    @property
    def rejected_bytes(self) -> int:
        return sum(one.nbytes for one in self.rejected)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterParts:
    """The parts of a writer."""

    source: TopicSource
    log: TableLog
    # Opens `<name>__rejected`, and creates it if it does not exist.
    open_rejected: Callable[[], TableLog]
    decoder: ValueDecoder | None
    new_random: Callable[[], str]
    # See `Committer`.
    wait: Callable[[int], None]
    # Partitions that this writer leaves to others.
    is_mine: Callable[[int], bool] = lambda _partition: True


class TableWriter:
    def __init__(self, parts: WriterParts, settings: TableSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._layout = Layout.of(settings)
        self._committer = self._committer_of(parts.log)
        self._rejected: TableLog | None = None
        self._table_id = ""
        # State of the round that is running.
        self._state: TableState | None = None
        self._files: PartFiles | None = None
        self._progress: dict[int, _Progress] = {}
        self._result = RoundResult()
        self._note = ""

    def _committer_of(self, log: TableLog) -> Committer:
        return Committer(log, new_token=self._parts.new_random, wait=self._parts.wait)

    @property
    def state(self) -> TableState | None:
        """The table as this writer last saw it."""
        return self._state

    def round(self) -> RoundResult:
        """Read and commit what the table lacks now.

        Raises:
            TableError, ClientError: raised by its parts. Earlier commits remain.
        """
        self._result = RoundResult()
        self._state = self._loaded()
        wanted = self._lacking()
        self._progress = {
            one.partition: _Progress(begin=self._known(one), next=one.begin)
            for one in wanted.ranges
        }
        try:
            for piece in self._parts.source.read(wanted.ranges):
                self._add(piece)
                if self._result.overtaken:
                    # Another writer has committed these offsets: start again from its positions.
                    return self._result
            self._commit(list(self._progress))
        finally:
            if self._files is not None:
                self._files.discard()
                self._files = None
        return self._result

    # -- what to write

    def _loaded(self) -> TableState:
        state = self._parts.log.load()
        topic = self._parts.source.identity()
        if state.topic != topic:
            raise ForeignTable(
                f"the table at {self._parts.log.files.location} belongs to topic {state.topic.name} "
                f"({state.topic.id}), and {topic.name} is {topic.id}",
                hint="a topic that was created again needs a new table: move the old one, or choose another folder",
            )
        if self._table_id and state.table_id != self._table_id:
            raise TableAltered(
                f"the table at {self._parts.log.files.location} was replaced while it was written",
                hint="nothing of the new one was changed; start the writer again to continue with it",
            )
        self._table_id = state.table_id
        check_columns(state, self._layout, self._parts.log.files.location)
        return state

    def _lacking(self) -> Lacking:
        assert self._state is not None
        ends = self._parts.source.ends()
        found = lacking(
            self._state.positions,
            {number: one for number, one in ends.items() if self._parts.is_mine(number)},
            topic=self._state.topic.name,
            accept_gaps=self._settings.respool_table_gap is OnGap.CONTINUE,
        )
        self._note = (
            f"deleted before they were read: {'; '.join(map(str, found.gaps))}"
            if found.gaps
            else ""
        )
        self._result.gaps = sum(one.end - one.begin for one in found.gaps)
        if self._note:
            _log.warning("%s: %s", self._state.topic.name, self._note)
        return found

    def _known(self, wanted: TopicRange) -> int:
        """The position that the commit moves from: below the range, if there is a gap."""
        assert self._state is not None
        return self._state.positions.get(wanted.partition, wanted.begin)

    # -- rows

    def _add(self, piece: SourcePiece) -> None:
        decoder = self._parts.decoder
        if decoder and piece.batch is not None and self._settings.respool_table_schema.evolves:
            self._evolve(decoder, piece.batch.column("value"))
            if self._result.overtaken:
                return
        # Looked up after columns were added: that commits the rows read before.
        progress = self._progress[piece.partition]
        size = 0
        if piece.batch is not None and piece.batch.num_rows:
            rows = self._rows(piece.batch, progress)
            if rows.num_rows:
                size = self._open_files().add(piece.partition, rows)
        progress.next = max(progress.next, piece.next_offset)
        if (
            size >= self._settings.respool_table_file_bytes
            or progress.rejected_bytes >= REJECTED_BYTES_MAX
        ):
            self._commit([piece.partition])

    def _open_files(self) -> PartFiles:
        if self._files is None:
            assert self._state is not None
            self._files = PartFiles(
                self._parts.log.files,
                self._parts.log.write_schema(self._state),
                by_day=self._layout.by_day,
                held_bytes_max=self._settings.respool_table_file_bytes,
                random=self._parts.new_random,
            )
        return self._files

    def _rows(self, batch: pa.RecordBatch, progress: _Progress) -> pa.RecordBatch:
        assert self._state is not None
        decoder = self._parts.decoder
        if decoder is None:
            return shape_rows(batch, self._layout, ())
        fields = self._layout.value_fields(self._state.schema)
        decoded = decoder.decode(batch.column("value"), fields)
        if decoded.rejected:
            self._reject(batch, decoded, progress)
        return shape_rows(batch, self._layout, fields, decoded)

    def _reject(self, batch: pa.RecordBatch, decoded: DecodedValues, progress: _Progress) -> None:
        assert self._state is not None
        first = decoded.rejected[0]
        if self._settings.respool_table_errors is OnBadRecord.STOP:
            place = f"{self._state.topic.name}/{batch.column('partition')[first.row]}"
            raise RecordRejected(
                f"{place} at offset {batch.column('offset')[first.row]} cannot be read: {first.reason}",
                hint="respool.table.errors=table puts such records into a table of their own",
            )
        self._result.rejected += len(decoded.rejected)
        if self._settings.respool_table_errors is OnBadRecord.TABLE:
            progress.rejected.append(rejected_rows(batch, decoded))

    def _evolve(self, decoder: ValueDecoder, values: pa.Array) -> None:
        """Add columns for fields that appear for the first time."""
        while True:
            assert self._state is not None
            known = self._layout.value_fields(self._state.schema)
            new = decoder.new_fields(values, known)
            if not new:
                return
            # Files have one schema: those that are open end here.
            self._commit(list(self._progress))
            self._files = None
            try:
                self._parts.log.add_columns(self._state, self._layout.new_columns(known, new))
            except TableConflict:
                _log.info("another writer changed the table; looking again for new columns")
            self._state = self._loaded()

    # -- commits

    def _commit(self, partitions: list[int]) -> None:
        """Commit what these partitions have, and begin new files for them."""
        assert self._state is not None
        moved = {
            number: self._progress[number]
            for number in partitions
            if self._progress[number].next > self._progress[number].begin
        }
        if not moved:
            return
        finished = {}
        for number, one in moved.items():
            files = (
                []
                if self._files is None
                else self._files.finish(number, first=one.begin, end=one.next)
            )
            reached = TopicRange(partition=number, begin=one.begin, end=one.next)
            finished[number] = FinishedRange(range=reached, files=files)
        self._commit_rejected(moved)
        outcome = self._committer.commit(self._state, finished, note=self._note)
        self._state = outcome.state
        self._result.commits += 1
        self._result.overtaken += len(outcome.overtaken)
        for number in outcome.done:
            self._result.rows += finished[number].rows
            self._result.files += len(finished[number].files)
            self._progress[number] = _Progress(begin=moved[number].next, next=moved[number].next)

    def _commit_rejected(self, moved: Mapping[int, _Progress]) -> None:
        having = {number: one for number, one in moved.items() if one.rejected}
        if not having:
            return
        if self._rejected is None:
            self._rejected = self._parts.open_rejected()
        log = self._rejected
        committer = self._committer_of(log)
        while having:
            state = log.load()
            files = PartFiles(
                log.files,
                log.write_schema(state),
                by_day=False,
                held_bytes_max=REJECTED_BYTES_MAX,
                random=self._parts.new_random,
            )
            finished = {}
            for number, one in having.items():
                position = state.positions.get(number, 0)
                if position >= one.next:
                    # Committed before the process died, or by another writer.
                    continue
                for batch in one.rejected:
                    new = batch.filter(pc.greater_equal(batch.column(OFFSET), position))
                    if new.num_rows:
                        files.add(number, new)
                begin = state.positions.get(number, one.begin)
                written = files.finish(number, first=max(begin, one.begin), end=one.next)
                reached = TopicRange(partition=number, begin=begin, end=one.next)
                finished[number] = FinishedRange(range=reached, files=written)
            outcome = committer.commit(state, finished)
            # Partitions of another writer are checked again: it may have committed less than we have.
            having = {number: having[number] for number in outcome.overtaken}


def check_columns(state: TableState, layout: Layout, location: str) -> None:
    """
    Raises:
        TableAltered: the table lacks a column that every row has, or has it with another type.
    """
    for wanted in layout.schema(()):
        found = state.schema.field(wanted.name) if wanted.name in state.schema.names else None
        if found is None or not _is_like(found.type, wanted.type):
            what = (
                "is missing" if found is None else f"is {found.type}, and should be {wanted.type}"
            )
            raise TableAltered(
                f"column {wanted.name} of the table at {location} {what}",
                hint="another program changed the table, or respool.table.* were changed after its creation: undo "
                "that, or create the table again",
            )


def _is_like(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(found))
    return bool(found == wanted)
