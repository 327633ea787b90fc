"""How many series with names of topics and groups are published: `metrics_series_max`, first come, first served.

What has been admitted stays until its topic, partition or group is gone, so that no series flickers from scrape to
scrape. What finds no room is counted in `respool_metrics_series_dropped`, and logged.
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


class SeriesBudget:
    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._used = 0
        # How many series each one has.
        self._admitted: dict[SeriesKind, dict[Hashable, int]] = {kind: {} for kind in SeriesKind}
        # How many series found no room when they were last wanted.
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
        """Only these are left of the kind; the others make room."""
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


# No topic can have this name.
OTHER_TOPICS = "(other)"
