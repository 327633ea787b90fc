"""What readers are shown of topics: views by their conditions, and delay topics without delayed records."""

from contextlib import suppress
from typing import NamedTuple

from respool.broker.views.batch_filter import ViewCondition, ViewConditions
from respool.broker.views.filtered_read import FilteredRead, FilteredSource, ScannedTo
from respool.broker.views.filtered_records import FilteredRecords
from respool.broker.views.scan_pass import ScanPass
from respool.broker.views.scanned_log import ScannedLog
from respool.broker.views.verdict_cache import CacheScope, VerdictCache
from respool.log.partition_log import ReadSpec
from respool.log.tag_query import TagName, TagQuery, indexed_names
from respool.model.cluster import ClusterImage, TopicImage
from respool.model.conditions.clause_parser import InvalidWhere
from respool.model.ids import Offset, TopicId
from respool.model.server_settings import BrokerFetchSettings
from respool.model.topic_config import TopicConfig
from respool.model.where import NOT_HIDDEN, Where
from respool.ports.metrics import Metrics
from respool.ports.offload import Offload
from respool.ports.record_scan import RecordScanner


class Views:
    def __init__(
        self,
        *,
        settings: BrokerFetchSettings,
        scanner: RecordScanner,
        offload: Offload,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._scanner = scanner
        self._conditions = ViewConditions(scanner)
        self.cache = VerdictCache(bytes_max=settings.view_cache_bytes_max, guard=offload.lock())
        self._scanned_bytes = metrics.counter(
            "respool_view_scanned_bytes_total",
            "Bytes of the log that were scanned for the records that views show.",
        )
        self._sent_bytes = metrics.counter(
            "respool_view_sent_bytes_total", "Bytes that readers of views got."
        )
        self._skipped_bytes = metrics.counter(
            "respool_view_skipped_bytes_total",
            "Bytes of the log that the tag index let readers of views, and readers by tags, pass over.",
        )
        self._rebuilt_batches = metrics.counter(
            "respool_view_rebuilt_batches_total",
            "Batches that were rebuilt because a view shows some of their records.",
        )
        self._unreadable_batches = metrics.counter(
            "respool_view_unreadable_batches_total",
            "Batches that views leave out because their records cannot be read.",
        )

    def condition(
        self, config: TopicConfig, view: TopicImage | None, *, wanted: Where | None = None
    ) -> ViewCondition | None:
        """What a consumer is shown of a topic, or of a view of it; None: everything.

        Of what it may be shown, it may be sent only what is `wanted`.
        """
        where = None if view is None or view.view is None else view.view.where
        if config.respool_delay and (where is None or where.hidden is None):
            where = NOT_HIDDEN if where is None else where.and_(NOT_HIDDEN)
        if where is None:
            return None
        if wanted is not None:
            # No record can match both: then the reader finds that out.
            with suppress(InvalidWhere):
                where = where.and_(wanted)
        return self._conditions.of(where)

    def tag_query(self, wanted: Where) -> TagQuery | None:
        """What a reader's own condition asks of tag indexes; None: nothing."""
        return self._conditions.of(wanted).tag_query

    def use_secret(self, secret: bytes) -> None:
        """From now on tag indexes, whose hashes have this secret, are used."""
        self._conditions.use_secret(secret)

    def quick_pass(self) -> ScanPass:
        """For the event loop."""
        return ScanPass(bytes_max=self._scanner.quick_bytes_max, is_quick=True)

    def thorough_pass(self) -> ScanPass:
        """For another thread."""
        return ScanPass(bytes_max=self._settings.view_scan_bytes_max, is_quick=False)

    def count(self, scan: ScanPass | None, *, is_sent: bool = False) -> None:
        """Add what a pass did to the metrics; `is_sent`: what it found is the reply."""
        if scan is None or not (scan.scanned_bytes or scan.skipped_bytes):
            return
        for counter, amount in (
            (self._scanned_bytes, scan.scanned_bytes),
            (self._sent_bytes, scan.sent_bytes if is_sent else 0),
            (self._skipped_bytes, scan.skipped_bytes),
            (self._rebuilt_batches, scan.rebuilt_batches),
            (self._unreadable_batches, scan.unreadable_batches),
        ):
            if amount:
                counter.inc(amount)


def names_by_topic(image: ClusterImage) -> dict[TopicId, list[TagName]]:
    """By which headers, or the key, an index helps the readers of each topic's views."""
    found: dict[TopicId, list[TagName]] = {}
    for name in sorted(image.views):
        view = image.views[name].view
        if view is not None:
            found.setdefault(view.parent_id, []).extend(indexed_names(view.where))
    return found


class _Scan(NamedTuple):
    # Another one if the view was changed, or created again.
    scope: CacheScope
    fetch_offset: Offset
    # Of the log, before the scan.
    truncations: int


class ViewReader:
    """The reads of one fetch request. It remembers how far each found nothing, while the request waits."""

    def __init__(self, views: Views, *, read_committed: bool, takes_zstd: bool) -> None:
        self._views = views
        self._read_committed = read_committed
        self._takes_zstd = takes_zstd
        # By topic and partition: what was scanned, and how far nothing is shown from there.
        self._scanned: dict[object, tuple[_Scan, ScannedTo]] = {}

    def read(
        self,
        log: ScannedLog,
        spec: ReadSpec,
        scan: ScanPass,
        *,
        key: tuple[object, int],
        topic_id: TopicId,
        condition: ViewCondition,
    ) -> FilteredRecords:
        """
        Raises:
            The exceptions of `FilteredRead.run`.
        """
        scope = CacheScope(topic_id, key[1], condition.text)
        this_scan = _Scan(scope, spec.offset, log.truncations)
        last_scan, scanned = self._scanned.get(key, (None, None))
        source = FilteredSource(log, scope, condition, self._read_committed, self._takes_zstd)
        read = FilteredRead(source, spec, scan, self._views.cache)
        records = read.run(begin=scanned if last_scan == this_scan else None)
        if records.is_idle:
            self._scanned[key] = this_scan, read.scanned
        return records
