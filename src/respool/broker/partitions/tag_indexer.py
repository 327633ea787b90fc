"""Makes the tag indexes of partitions whose topics have views, or `respool.tags`, in slices off the event loop."""

import logging
from collections.abc import Callable, Mapping, Sequence

from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.log.folder.tag_secret import tag_secret
from respool.log.partition_log import PartitionLog
from respool.log.tag_indexing import TagIndexing, TagTools
from respool.log.tag_query import TagName
from respool.model.errors import DiskFull, HandlesExhausted, StorageError
from respool.model.ids import TopicId
from respool.ports.disk import Disk
from respool.ports.offload import Offload
from respool.ports.random_source import RandomSource
from respool.ports.record_scan import RecordScanner

logger = logging.getLogger(__name__)


class TagIndexer:
    def __init__(
        self,
        *,
        partitions: Partitions,
        disk: Disk,
        offload: Offload,
        rng: RandomSource,
        scanner: RecordScanner,
        view_names: Callable[[], Mapping[TopicId, Sequence[TagName]]],
        on_secret: Callable[[bytes], None],
    ) -> None:
        """`view_names`: by which names an index helps the views of each topic. `on_secret` gets the hashes' secret."""
        self._partitions = partitions
        self._disk = disk
        self._offload = offload
        self._rng = rng
        self._scanner = scanner
        self._view_names = view_names
        self._on_secret = on_secret
        self._tools: TagTools | None = None
        # Partitions that cannot be indexed. No retry before a restart, since it would read the same damage.
        self._failed: set[Partition] = set()

    async def index_all(self) -> None:
        """Make what is missing, partition by partition."""
        self._failed = {one for one in self._failed if one.is_online}
        view_names = self._view_names()
        for partition in list(self._partitions):
            if not partition.is_online or partition in self._failed:
                continue
            log = partition.log
            names = dict.fromkeys(view_names.get(partition.topic_id, ()))
            if log.config.respool_tags.names:
                names |= dict.fromkeys(
                    None if name is None else name.encode()
                    for name in log.config.respool_tags.names
                )
            if names:
                await self._index(partition, log, list(names))

    async def _prepare(self) -> TagTools | None:
        """None if the disk has no secret for the hashes, and no room for one."""
        if self._tools is None:
            new = self._rng.uuid().bytes
            try:
                secret = await self._offload.run(lambda: tag_secret(self._disk, new))
            except StorageError as error:
                logger.warning("no tag indexes are made now: %s", error)
                return None
            self._tools = TagTools(scanner=self._scanner, secret=secret)
            self._on_secret(secret)
        return self._tools

    async def _index(
        self, partition: Partition, log: PartitionLog, names: Sequence[TagName]
    ) -> None:
        tools = await self._prepare()
        if tools is None:
            return
        indexing = log.index_tags(names, tools)
        truncations = log.truncations
        try:
            while partition.is_online and await self._offload.run(indexing.run):
                if indexing.is_save_due:
                    await self._save(partition, indexing)
        except (DiskFull, HandlesExhausted) as error:
            logger.warning("%s: no room for its tag index now: %s", partition.name, error)
        except StorageError as error:
            if not partition.is_online or log.was_truncated_since(truncations):
                return
            self._failed.add(partition)
            logger.error(
                "%s: no tag index until the broker is restarted: %s. Views of it are served on.",
                partition.name,
                error,
            )

    async def _save(self, partition: Partition, indexing: TagIndexing) -> None:
        # Not while another thread truncates the log, nor while a compaction replaces segments.
        async with partition.changing:
            if partition.is_online:
                await self._offload.run(indexing.save)
