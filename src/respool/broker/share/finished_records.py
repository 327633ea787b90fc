"""Deletes what share groups have finished, in topics with respool.share.delete.finished=true.

The log start follows the slowest share group that has state of the partition. It stays where it is while there is no
such group, while one has not decided where it begins, while a coordinator does not answer, and while another group,
which reads the log itself, has offsets there. Followers and later leaders follow the log start.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from respool.broker.layouts.group_reading import ReadingGroups
from respool.broker.partitions.housekeeping import Housekeeping
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.share.share_starts import UNDECIDED, ShareStarts, Starts
from respool.model.cluster import ClusterImage, TopicImage
from respool.model.errors import InvalidConfig, RequestError, StorageError

logger = logging.getLogger(__name__)

SETTING = "respool.share.delete.finished"
NAMED_MAX = 10


class DeletingBroker(Protocol):
    """What deletion needs of the broker: `Broker`."""

    partitions: Partitions
    housekeeping: Housekeeping

    @property
    def topic_readers(self) -> ReadingGroups: ...

    @property
    def image(self) -> ClusterImage: ...


class FinishedRecords:
    def __init__(self, broker: DeletingBroker, starts: ShareStarts) -> None:
        self._broker = broker
        self._starts = starts
        # Topics whose other groups have been reported.
        self._reported: set[str] = set()

    async def delete(self) -> None:
        """Delete what is finished in the partitions that this broker leads."""
        led: dict[str, list[Partition]] = {}
        for partition in self._broker.partitions:
            if _may_delete(partition):
                led.setdefault(partition.name.topic, []).append(partition)
        if not led or not self._broker.partitions.may_act:
            return
        try:
            free = {name for name in led if not await self._other_groups(name)}
            starts = await self._starts.of_topics(free)
        except RequestError as error:
            logger.info("what share groups have finished is not deleted now: %s", error)
            return
        for name in sorted(free):
            for partition in led[name]:
                self._delete(partition, starts)
                await asyncio.sleep(0)

    async def _other_groups(self, name: str) -> list[str]:
        """Groups that are no share groups, and have offsets in the topic."""
        topic = self._broker.image.topics.get(name)
        if topic is None:
            return []
        groups = await other_groups(self._broker, topic)
        if groups and name not in self._reported:
            logger.warning(
                "%s: nothing is deleted though %s = true: groups %s have offsets there",
                name,
                SETTING,
                ", ".join(groups[:NAMED_MAX]),
            )
            self._reported.add(name)
        elif not groups:
            self._reported.discard(name)
        return groups

    def _delete(self, partition: Partition, starts: Starts) -> None:
        found = starts.get(partition.name, ())
        # Meanwhile another broker may have been elected.
        if not found or UNDECIDED in found or not _may_delete(partition):
            return
        log, housekeeping = partition.log, self._broker.housekeeping
        offset = min(*found, partition.last_stable_offset, housekeeping.kept_from(partition))
        if offset <= log.log_start or partition.changing.locked():
            return
        try:
            log.raise_log_start(offset)
            partition.on_log_start_moved()
        except StorageError as error:
            partition.on_storage_error(error)
            return
        housekeeping.clean(partition)


async def other_groups(broker: DeletingBroker, topic: TopicImage) -> list[str]:
    """
    Raises:
        RequestError: some groups cannot be asked for now.
    """
    return [
        one.group_id
        for one in await broker.topic_readers.readers(topic)
        if any(one.committed.values())
    ]


async def refuse_if_read(broker: DeletingBroker, name: str, wanted: Mapping[str, str]) -> None:
    """Check what a topic's settings shall be.

    Raises:
        InvalidConfig: finished records shall be deleted, which other groups may not have read.
        RequestError: some groups cannot be asked for now.
    """
    topic = broker.image.topics.get(name)
    if topic is None or topic.config.respool_share_delete_finished:
        return
    if wanted.get(SETTING, "").strip().lower() != "true":
        return
    groups = await other_groups(broker, topic)
    if groups:
        raise InvalidConfig(
            f"{SETTING} = true: groups {', '.join(groups[:NAMED_MAX])} have offsets in {name!r}, and read the log "
            "itself; delete their offsets first"
        )


def _may_delete(partition: Partition) -> bool:
    return (
        partition.is_online
        and partition.is_leading
        and partition.has_log
        and partition.config.respool_share_delete_finished
        # A mirror's log start follows its source's.
        and not partition.config.respool_mirror
    )
