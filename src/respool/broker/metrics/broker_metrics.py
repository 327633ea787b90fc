"""All metrics that a broker publishes about its topics, partitions and groups, wired together."""

import asyncio
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol

from respool.broker.coordinators.group_coordinators import Groups
from respool.broker.metadata.catalog import Catalog
from respool.broker.metrics.group_lag import GroupLag
from respool.broker.metrics.record_ages import RecordAges
from respool.broker.metrics.remote_ends import RemoteEnds
from respool.broker.metrics.series_budget import SeriesBudget
from respool.broker.metrics.topic_series import TopicSeries, TopicTraffics
from respool.broker.partitions.registry import Partitions
from respool.broker.peer_link import PeerLink
from respool.model.name_filter import NameFilter
from respool.model.settings import Settings
from respool.ports.clock import Clock
from respool.ports.metrics import Family, Metrics
from respool.ports.offload import Offload

# In seconds: from a disk with its own write cache to a disk that hangs.
SYNC_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class GroupSeries(Protocol):
    def collect(self) -> Iterator[Family]: ...

    async def refresh(self) -> None: ...


class BrokerMetrics:
    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._metrics = metrics
        self._interval_s = settings.metrics.lag_interval_ms / 1000
        self._budget = SeriesBudget(settings.metrics.series_max)
        self._topic_names = NameFilter(
            allow=settings.metrics.topics_allow, deny=settings.metrics.topics_deny
        )
        self._group_names = NameFilter(
            allow=settings.metrics.groups_allow, deny=settings.metrics.groups_deny
        )
        self.sync_seconds = metrics.histogram(
            "respool_sync_seconds",
            "Time of a sync, for all partitions that wait for one together: in line for a thread and on the disk.",
            buckets=SYNC_BOUNDS,
        )
        self.traffics = TopicTraffics(self._topic_names, self._budget)
        self._added: list[GroupSeries] = []

    def wire(
        self,
        *,
        partitions: Partitions,
        groups: Groups,
        catalog: Catalog,
        offload: Offload,
        clock: Clock,
        link: PeerLink | None,
    ) -> None:
        """Set what the constructor cannot have: these objects are created later, since they need `traffics`."""
        self._ages = RecordAges(partitions=partitions, offload=offload)
        self._lag = GroupLag(
            groups=groups,
            partitions=partitions,
            catalog=catalog,
            ages=self._ages,
            remote=None if link is None else RemoteEnds(link),
            names=self._group_names,
            topic_names=self._topic_names,
            budget=self._budget,
            clock=clock,
        )
        topics = TopicSeries(
            partitions=partitions,
            traffics=self.traffics,
            ages=self._ages,
            names=self._topic_names,
            budget=self._budget,
            catalog=catalog,
            clock=clock,
        )
        for collect in (topics.collect, self._lag.collect, self._budget.collect):
            self._metrics.add_collector(collect)

    def add_group_series(self, new_series: Callable[..., GroupSeries]) -> None:
        """Add series of groups and topics, made with what all of them share; after `wire`."""
        series = new_series(
            ages=self._ages,
            names=self._group_names,
            topic_names=self._topic_names,
            budget=self._budget,
        )
        self._added.append(series)
        self._metrics.add_collector(series.collect)

    async def refresh(self) -> None:
        """Look up the values that would delay a scrape."""
        await self._ages.refresh()
        await self._lag.refresh()
        for one in self._added:
            await one.refresh()

    async def keep_refreshing(self) -> NoReturn:
        """Refresh periodically, as long as metrics are served."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._interval_s)
