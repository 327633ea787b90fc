"""The service behind `respool table run`: rounds of a writer at each interval, and upkeep, until it is stopped.

It waits for a broker, a store or a registry that is unavailable; an error that needs an operator ends
it.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BrokerUnreachable
from respool.client.kafka.reading.read_errors import PartitionUnavailable, RetentionOvertook
from respool.model.tables.table_settings import TableSettings
from respool.pacing.backoff import Backoff
from respool.tables.errors import CommitUnknown, RegistryUnavailable, TableConflict, TableError
from respool.tables.formats.opening import make_rejected, open_table
from respool.tables.formats.table_log import TableLog
from respool.tables.upkeep.expiry import forget_versions
from respool.tables.upkeep.joining_files import compact, drop_expired_rows
from respool.tables.values.decoding import make_decoder
from respool.tables.values.value_decoder import ValueDecoder
from respool.tables.writing.table_writer import RoundResult, TableWriter, WriterParts
from respool.tables.writing.topic_source import BrokerSource

_log = logging.getLogger("respool.tables")
# In seconds.
BACKOFF = Backoff(first=0.2, longest=30, jitter=0.2)
# Versions expire after this many commits: each one that is kept makes commits slower.
FORGET_EVERY = 20
COMPACT_EVERY_MS = 10 * 60_000
_PASSING = (
    BrokerUnreachable,
    PartitionUnavailable,
    RetentionOvertook,
    RegistryUnavailable,
    CommitUnknown,
    TableConflict,
)


class ServiceStopped(Exception):
    """Raised inside a round when the service is asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterShare:
    """The partitions of one of several writers of a topic: number `index` of `count`, from 0."""

    index: int = 0
    count: int = 1

    def has(self, partition: int) -> bool:
        return partition % self.count == self.index


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceEvent:
    """Something happened that an operator may want to know."""

    message: str
    result: RoundResult | None = None
    is_problem: bool = False


class TableService:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        share: WriterShare | None = None,
        on_event: Callable[[ServiceEvent], None] = lambda _event: None,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._share = share or WriterShare()
        self._on_event = on_event
        self._stop = Event()
        self._source = BrokerSource(cluster, topic)
        self._settings: TableSettings | None = None
        self._log: TableLog | None = None
        self._writer: TableWriter | None = None
        self._decoder: ValueDecoder | None = None
        self._partitions = 0
        self._commits = 0
        self._compacted_at = time.monotonic()

    def stop(self) -> None:
        """May be called by another thread, or by a signal handler."""
        self._stop.set()

    def run(self, *, once: bool = False) -> RoundResult:
        """Write until stopped; with `once`, until the table has everything that the log has now. Return the totals.

        Raises:
            TableError, ClientError: an operator must act. What was committed stays.
        """
        total = RoundResult()
        failures = 0
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                try:
                    result = self.round()
                except _PASSING as error:
                    failures += 1
                    self._on_event(ServiceEvent(message=str(error), is_problem=True))
                    self._wait(failures)
                    continue
                failures = 0
                _add(total, result)
                if result.overtaken:
                    continue
                if once:
                    break
                self._keep_up()
                self._pause(began)
        except ServiceStopped:
            pass
        finally:
            self.close()
        return total

    def round(self) -> RoundResult:
        """One round, with the settings of the topic as they are now."""
        writer = self._prepared()
        result = writer.round()
        self._commits += result.commits
        if result.commits:
            self._on_event(
                ServiceEvent(
                    message=f"{result.rows} rows in {result.files} files, {result.rejected} rejected",
                    result=result,
                )
            )
        return result

    def _prepared(self) -> TableWriter:
        settings, partitions = self._source.settings(), len(self._source.ends())
        if self._writer is None or settings != self._settings or partitions != self._partitions:
            self._close_decoder()
            self._settings, self._partitions = settings, partitions
            identity = self._source.identity()
            log = open_table(settings, self._topic, partitions=partitions)
            self._log = log
            self._decoder = make_decoder(
                settings.respool_table_schema,
                topic=self._topic,
                registry=settings.respool_table_registry,
            )
            parts = WriterParts(
                source=self._source,
                log=log,
                open_rejected=lambda: make_rejected(settings, identity, partitions=partitions),
                decoder=self._decoder,
                new_random=new_random,
                wait=self._wait,
                is_mine=self._share.has,
            )
            self._writer = TableWriter(parts, settings)
        return self._writer

    def _keep_up(self) -> None:
        """Upkeep, by the writer that has partition 0."""
        if not self._share.has(0) or self._log is None or self._settings is None:
            return
        try:
            if self._commits >= FORGET_EVERY:
                self._commits = 0
                forget_versions(self._log, now_ms=_now_ms())
            if (time.monotonic() - self._compacted_at) * 1000 >= COMPACT_EVERY_MS:
                self._compacted_at = time.monotonic()
                compact(self._log, new_random=new_random)
                retention_ms = self._settings.respool_table_retention_ms
                if retention_ms >= 0:
                    before_us = (_now_ms() - retention_ms) * 1000
                    drop_expired_rows(self._log, before_us=before_us, token=new_random())
        except (TableError, OSError) as error:
            # New rows matter more; upkeep is tried again later.
            self._on_event(ServiceEvent(message=f"upkeep failed: {error}", is_problem=True))

    def _pause(self, began: float) -> None:
        assert self._settings is not None
        left = self._settings.respool_table_interval_ms / 1000 - (time.monotonic() - began)
        self._stop.wait(max(0.0, left))

    def _wait(self, failures: int) -> None:
        if self._stop.wait(BACKOFF.delay(failures, random=random.random)):
            raise ServiceStopped

    def _close_decoder(self) -> None:
        if self._decoder is not None:
            self._decoder.close()
            self._decoder = None

    def close(self) -> None:
        self._close_decoder()
        self._writer = None


def new_random() -> str:
    return secrets.token_hex(8)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _add(total: RoundResult, result: RoundResult) -> None:
    for name in ("rows", "files", "rejected", "commits", "overtaken", "gaps"):
        setattr(total, name, getattr(total, name) + getattr(result, name))
