"""Series of share groups, by group and topic, from the share partitions that this broker leads and has loaded.

A share partition is loaded as long as a member has a session for it, so gauges of a group without members are absent;
counters stay. Summed over the brokers of a cluster, each record counts once. The age of the oldest unfinished record is
looked up every `metrics_lag_interval_ms`, and grows with the clock.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from respool.broker.metadata.catalog import Catalog
from respool.broker.metrics.record_ages import RecordAges
from respool.broker.metrics.series_budget import SeriesBudget, SeriesKind
from respool.broker.partitions.partition import Partition
from respool.broker.share.share_partition import SharePartition
from respool.broker.share.shares import Shares
from respool.coordination.share.transitions import ShareCounts
from respool.model.ids import Offset, TopicId
from respool.model.name_filter import NameFilter
from respool.ports.clock import Clock
from respool.ports.metrics import Family, Sample

LABELS = ("group", "topic")
# Deliveries beyond are counted together: a group's limit is 10 unless the broker allows more.
DELIVERIES_MAX = 10
# Five gauges, six counters, and deliveries by their number.
SERIES_PER_GROUP = 11 + DELIVERIES_MAX

Labels = tuple[str, str]
_GroupTopic = tuple[str, TopicId]


class _Loaded(NamedTuple):
    labels: Labels
    shares: list[SharePartition]


class ShareSeries:
    def __init__(
        self,
        *,
        shares: Shares,
        catalog: Catalog,
        ages: RecordAges,
        names: NameFilter,
        topic_names: NameFilter,
        budget: SeriesBudget,
        clock: Clock,
    ) -> None:
        self._shares = shares
        self._catalog = catalog
        self._ages = ages
        self._names = names
        self._topic_names = topic_names
        self._budget = budget
        self._clock = clock
        # Timestamps of the first unfinished records, as last looked up.
        self._times: dict[tuple[Partition, Offset], int] = {}

    def collect(self) -> Iterator[Family]:
        loaded = self._loaded()
        gauges = [
            (one.labels, [share.gauges() for share in one.shares]) for one in loaded if one.shares
        ]
        for name, help_text in (
            ("ready", "Records of share groups that members may acquire."),
            ("held", "Records of share groups that members hold."),
            ("waiting", "Records of share groups whose redelivery is delayed."),
            ("dying", "Records of share groups whose dead letter is not written yet."),
        ):
            yield Family(
                f"respool_share_{name}_records",
                "gauge",
                help_text,
                LABELS,
                [(labels, sum(getattr(one, name) for one in of)) for labels, of in gauges],
            )
        yield Family(
            "respool_share_oldest_age_seconds",
            "gauge",
            "Age of the first record that a share group has not finished; 0 when it has finished all.",
            LABELS,
            self._oldest_ages(loaded),
        )
        counts = self._counts(loaded)
        yield Family(
            "respool_share_deliveries_total",
            "counter",
            "Records that members of share groups acquired, by how often they have been delivered.",
            (*LABELS, "delivery"),
            _deliveries(counts),
        )
        for name, help_text in (
            ("accepted", "Records that members of share groups accepted."),
            ("late_accepts", "Of them, those that were accepted after their lock had ended."),
            ("lock_ends", "Records of share groups that came back because their lock had ended."),
            ("archived", "Records of share groups that ended without being accepted."),
            ("dead_letters", "Records of share groups that became dead letters."),
            ("lost", "Unfinished records of share groups that the log deleted."),
        ):
            yield Family(
                f"respool_share_{name}_total",
                "counter",
                help_text,
                LABELS,
                [(labels, getattr(one, name)) for labels, one in counts.items()],
            )

    async def refresh(self) -> None:
        """Look up the timestamps of the first unfinished records."""
        firsts = [
            first for one in self._loaded() for share in one.shares if (first := _first(share))
        ]
        known = {key: self._times[key] for key in firsts if key in self._times}
        known |= await self._ages.look_up(dict.fromkeys(key for key in firsts if key not in known))
        self._times = known

    def _loaded(self) -> list[_Loaded]:
        """Groups and topics that have series."""
        found: dict[_GroupTopic, list[SharePartition]] = {key: [] for key in self._shares.counts}
        for one in self._shares:
            if one.is_loaded and not one.is_gone:
                found.setdefault((one.key.group, one.key.topic_id), []).append(one)
        loaded, dropped, kept = [], 0, set()
        for (group, topic_id), shares in found.items():
            topic = self._catalog.image.readable_by_id(topic_id)
            if topic is None or not self._names.passes(group):
                continue
            if not self._topic_names.passes(topic.name):
                continue
            labels = group, topic.name
            if self._budget.admit(SeriesKind.SHARE_GROUP, labels, SERIES_PER_GROUP):
                loaded.append(_Loaded(labels, shares))
                kept.add(labels)
            else:
                dropped += SERIES_PER_GROUP
        self._budget.retain(SeriesKind.SHARE_GROUP, kept)
        self._budget.dropped[SeriesKind.SHARE_GROUP] = dropped
        return loaded

    def _counts(self, loaded: list[_Loaded]) -> dict[Labels, ShareCounts]:
        counts: dict[Labels, ShareCounts] = {}
        for one in loaded:
            counts[one.labels] = total = ShareCounts()
            for share in one.shares:
                total.add(share.counts)
        for (group, topic_id), gone in self._shares.counts.items():
            topic = self._catalog.image.readable_by_id(topic_id)
            if topic is not None and (group, topic.name) in counts:
                counts[group, topic.name].add(gone)
        return counts

    def _oldest_ages(self, loaded: list[_Loaded]) -> Iterator[Sample]:
        now_ms = self._clock.now_ms()
        for one in loaded:
            firsts = [_first(share) for share in one.shares]
            times = [self._times[key] for key in firsts if key in self._times]
            if times:
                yield one.labels, max(0, now_ms - min(times)) / 1_000
            elif one.shares and not any(firsts):
                yield one.labels, 0


def _first(share: SharePartition) -> tuple[Partition, Offset] | None:
    """The first unfinished record; None if there is none."""
    offset = max(share.gauges().start, share.partition.log_start)
    return (share.partition, offset) if offset < share.partition.high_watermark else None


def _deliveries(counts: Mapping[Labels, ShareCounts]) -> Iterator[Sample]:
    for labels, one in counts.items():
        by_number: dict[int, int] = {}
        for number, count in one.deliveries.items():
            shown = min(number, DELIVERIES_MAX)
            by_number[shown] = by_number.get(shown, 0) + count
        for number, count in sorted(by_number.items()):
            yield (*labels, str(number)), count
