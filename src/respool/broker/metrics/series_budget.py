"""Limits the number of series with topic and group names to `metrics_series_max`, first come, first served.

An admitted series stays until its topic, partition or group is gone, so that no series flickers from scrape to scrape.
Series beyond the limit are counted in `respool_metrics_series_dropped`, and logged.
"""

import logging
from collections.abc import Collection, Hashable, Iterator
from enum import StrEnum

from respool.ports.metrics import Family

logger = logging.getLogger(__name__)


class SeriesKind(StrEnum):
    TOPIC = "topic"
    PARTITION = "partition"
    GROUP = "group"
    SHARE_GROUP = "share group"


class SeriesBudget:
    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._used = 0
        # The number of series of each key.
        self._admitted: dict[SeriesKind, dict[Hashable, int]] = {kind: {} for kind in SeriesKind}
        # The number of series that were refused when last requested.
        self.dropped: dict[SeriesKind, int] = dict.fromkeys(SeriesKind, 0)
        self._has_warned = False

    def admit(self, kind: SeriesKind, key: Hashable, series: int) -> bool:
        """True if these series may be published: they were admitted before, or there is room."""
        admitted = self._admitted[kind]
        before = admitted.get(key, 0)
        if series <= before:
            return True
        if self._used + series - before > self._series_max:
            self._warn()
            return False
        self._used += series - before
        admitted[key] = series
        return True

    def retain(self, kind: SeriesKind, keys: Collection[Hashable]) -> None:
        """Keep only these keys of the kind; the others free their series."""
        admitted = self._admitted[kind]
        for key in [one for one in admitted if one not in keys]:
            self._used -= admitted.pop(key)

    def collect(self) -> Iterator[Family]:
        yield Family(
            "respool_metrics_series_dropped",
            "gauge",
            "Series not published because metrics_series_max is reached.",
            ("kind",),
            [((kind.value,), count) for kind, count in self.dropped.items()],
        )

    def _warn(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "metrics_series_max = %d is reached: other topics are counted together as %r, other partitions and "
                "groups are not in the metrics. Raise it, or choose with metrics_topics_allow and the like",
                self._series_max,
                OTHER_TOPICS,
            )


# An invalid topic name, so no topic can have it.
OTHER_TOPICS = "(other)"
