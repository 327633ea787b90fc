"""Elastic topics: the controller measures their load, and changes their number of partitions (`cluster/elastic.py`).

The load is how fast the logs of active partitions grow at their leaders, by DescribeLogDirs where these are other
brokers. Retention makes logs smaller: a partition's last rate is assumed then.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, Protocol

from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.registry import Partitions
from respool.broker.peer_link import PeerLink
from respool.cluster.elastic import ElasticRules, ElasticTopic, Resize
from respool.model.cluster import TopicImage
from respool.model.errors import ReassignmentInProgress, RequestError
from respool.model.ids import BrokerId, TopicId
from respool.model.layouts.elastic_mode import ElasticMode
from respool.ports.clock import Clock
from respool.ports.metadata_store import StoreUnavailable
from respool.ports.metrics import Metrics
from respool.ports.peers import PeerUnreachable
from respool.wire.api_table import Api

logger = logging.getLogger(__name__)

LOOK_S = 10.0
# A channel of its own, so that nothing else waits for these requests.
CHANNEL = 7
DESCRIBE_LOG_DIRS_VERSION = 4


class ResizesTopics(Protocol):
    """`Topics`."""

    async def add_partitions(self, name: str, *, partition_count: int) -> None: ...

    async def shrink(self, name: str, *, to: int, is_unkeyed: bool) -> None: ...


class _Sample(NamedTuple):
    at_ms: int
    # Of each active partition: its leader, and the size of its log there.
    sizes: Mapping[int, tuple[BrokerId, int]]
    # Bytes per second since the sample before, as far as known.
    rates: Mapping[int, float]


class _Watched:
    def __init__(self, active: int, *, now_ms: int) -> None:
        self.active = active
        self.policy = ElasticTopic(now_ms=now_ms)
        self.sample: _Sample | None = None


class Elasticity:
    def __init__(
        self,
        *,
        catalog: Catalog,
        partitions: Partitions,
        topics: ResizesTopics,
        link: PeerLink | None,
        clock: Clock,
        metrics: Metrics,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        """`link` is None for a single broker."""
        self._spawn = spawn
        self._is_running = False
        self._catalog = catalog
        self._partitions = partitions
        self._topics = topics
        self._link = link
        self._clock = clock
        self._watched: dict[TopicId, _Watched] = {}
        self._changes = {
            direction: metrics.counter(
                "respool_elastic_changes_total",
                "Changes of the number of partitions of elastic topics.",
                direction=direction,
            )
            for direction in ("grow", "shrink")
        }

    def on_topic(self, topic: TopicImage) -> None:
        """The topic's image has changed. Brokers without elastic topics do nothing."""
        if _is_elastic(topic) and not self._is_running:
            self._is_running = True
            self._spawn(self._run())

    async def _run(self) -> None:
        try:
            while any(map(_is_elastic, self._catalog.image.topics.values())):
                await self.look()
                await asyncio.sleep(LOOK_S)
        finally:
            self._is_running = False
            self._watched.clear()

    async def look(self) -> None:
        """Measure, and change what is due."""
        image = self._catalog.image
        is_controller = image.controller == self._catalog.me and self._partitions.may_act
        elastic = {
            topic.id: topic
            for topic in (image.topics.values() if is_controller else ())
            if _is_elastic(topic)
        }
        for gone in self._watched.keys() - elastic.keys():
            del self._watched[gone]
        for topic in elastic.values():
            await self._look_at(topic)

    async def _look_at(self, topic: TopicImage) -> None:
        now_ms = self._clock.monotonic_ms()
        watched = self._watched.get(topic.id)
        if watched is None:
            watched = self._watched[topic.id] = _Watched(topic.active_count, now_ms=now_ms)
        if watched.active != topic.active_count:
            watched.active, watched.sample = topic.active_count, None
            watched.policy.on_changed(now_ms)
        sizes = await self._sizes(topic)
        now_ms = self._clock.monotonic_ms()
        before, watched.sample = watched.sample, None
        load = None
        if sizes is not None:
            watched.sample = _next_sample(before, sizes, now_ms)
            rates = watched.sample.rates
            load = sum(rates.values()) if len(rates) == topic.active_count else None
        resize = watched.policy.on_load(
            load, active=topic.active_count, rules=_rules_of(topic), now_ms=now_ms
        )
        if resize is not None:
            await self._resize(topic, resize, watched)

    async def _resize(self, topic: TopicImage, resize: Resize, watched: _Watched) -> None:
        active = topic.active_count
        direction = "grow" if resize.to > active else "shrink"
        try:
            if resize.to > active:
                await self._topics.add_partitions(topic.name, partition_count=resize.to)
            else:
                is_unkeyed = topic.config.respool_elastic is ElasticMode.UNKEYED
                await self._topics.shrink(topic.name, to=resize.to, is_unkeyed=is_unkeyed)
        except ReassignmentInProgress as error:
            # The next look asks again.
            logger.info("%s: elastic, %s to %d: %s", topic.name, direction, resize.to, error)
            return
        except (RequestError, StoreUnavailable) as error:
            logger.warning(
                "%s: elastic, could not %s to %d: %s", topic.name, direction, resize.to, error
            )
            # Another attempt after a pause.
            watched.policy.on_changed(self._clock.monotonic_ms())
            return
        logger.info(
            "%s: elastic, from %d to %d partitions: %s", topic.name, active, resize.to, resize.why
        )
        self._changes[direction].inc()

    # -- the load ------------------------------------------------------------------------------------------------------

    async def _sizes(self, topic: TopicImage) -> dict[int, tuple[BrokerId, int]] | None:
        """The sizes of active logs at their leaders; None if some cannot be had."""
        by_leader: dict[BrokerId, list[int]] = {}
        for number, image in enumerate(topic.partitions[: topic.active_count]):
            if image.leader is None:
                return None
            by_leader.setdefault(image.leader, []).append(number)
        sizes: dict[int, tuple[BrokerId, int]] = {}
        for leader, numbers in sorted(by_leader.items()):
            try:
                if leader == self._catalog.me:
                    found = self._sizes_here(topic.name, numbers)
                else:
                    found = await self._sizes_at(leader, topic.name, numbers)
            except (PeerUnreachable, RequestError) as error:
                logger.debug("%s: its load is not known now: %s", topic.name, error)
                return None
            sizes |= {number: (leader, size) for number, size in found.items()}
        return sizes if len(sizes) == topic.active_count else None

    def _sizes_here(self, name: str, numbers: list[int]) -> dict[int, int]:
        return {one: self._partitions.find_leader(name, one).log.size_bytes for one in numbers}

    async def _sizes_at(self, leader: BrokerId, name: str, numbers: list[int]) -> dict[int, int]:
        assert self._link is not None
        reply = await self._link.ask(
            leader,
            Api.DESCRIBE_LOG_DIRS,
            DESCRIBE_LOG_DIRS_VERSION,
            channel=CHANNEL,
            topics=[{"topic": name, "partitions": numbers}],
        )
        return {
            one.partition_index: one.partition_size
            for folder in reply.results
            for topic in folder.topics
            for one in topic.partitions
            if topic.name == name
        }


def _next_sample(
    before: _Sample | None, sizes: Mapping[int, tuple[BrokerId, int]], now_ms: int
) -> _Sample:
    rates: dict[int, float] = {}
    if before is not None and now_ms > before.at_ms:
        seconds = (now_ms - before.at_ms) / 1000
        for number, (leader, size) in sizes.items():
            then = before.sizes.get(number)
            if then is None or then[0] != leader:
                continue
            if size >= then[1]:
                rates[number] = (size - then[1]) / seconds
            elif number in before.rates:
                # Retention deleted a segment.
                rates[number] = before.rates[number]
    return _Sample(now_ms, sizes, rates)


def _is_elastic(topic: TopicImage) -> bool:
    config = topic.config
    is_set = config.respool_elastic is not ElasticMode.OFF
    # A mirror has the partitions of its source, until it is promoted.
    return is_set and not config.respool_mirror and not topic.internal


def _rules_of(topic: TopicImage) -> ElasticRules:
    config = topic.config
    return ElasticRules(
        mode=config.respool_elastic,
        partitions_min=config.respool_elastic_min_partitions,
        partitions_max=config.respool_elastic_max_partitions,
        target_bytes_per_s=config.respool_elastic_target_bytes_per_second,
        pause_ms=config.respool_elastic_pause_ms,
    )
