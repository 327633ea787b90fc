"""Writes the dead letters of share groups.

A record is archived only when its letter is committed. Until then it counts as unfinished, and the letter is tried
again: a topic may be missing, a disk full, a leader away. After a change of leader a letter may be there twice.
"""

import asyncio
import logging
from typing import Protocol

from respool.broker.deliveries.delivery_batches import build_batches
from respool.broker.metadata.catalog import Catalog
from respool.broker.metadata.topics import Topics
from respool.broker.partitions.commit_waiters import when_committed
from respool.broker.partitions.registry import Partitions
from respool.broker.peer_link import PeerLink
from respool.broker.share.dead_letter_batch import letters, records_among
from respool.broker.share.share_partition import SharePartition, Spawn
from respool.broker.share.stored_batches import SharedBatch, stored_batches
from respool.coordination.share.share_machine import DyingRecords
from respool.log.partition_log import ReadSpec
from respool.model.cluster import ClusterImage
from respool.model.error_codes import error_for
from respool.model.errors import (
    InvalidConfig,
    LeaderNotAvailable,
    OffsetOutOfRange,
    RequestError,
    StorageError,
    UnknownTopicOrPartition,
)
from respool.model.ids import Offset
from respool.model.internal_topics import is_internal
from respool.model.settings import Settings
from respool.model.topic_config import TopicConfig
from respool.pacing.backoff import Backoff
from respool.ports.clock import Clock
from respool.ports.offload import Offload
from respool.ports.peers import PeerUnreachable
from respool.records.batch import RecordBatch
from respool.wire.api_table import Api

logger = logging.getLogger(__name__)

RETRY_S = Backoff(first=0.5, longest=30.0)
RECORDS_AT_ONCE = 500
READ_BYTES = 1024 * 1024
PRODUCE_VERSION = 9
PRODUCE_TIMEOUT_MS = 10_000
# Produce requests wait for disks, so nothing else shares their channel.
CHANNEL = 7


class DeadLetterBroker(Protocol):
    """What dead letters need of the broker: `Broker`."""

    settings: Settings
    partitions: Partitions
    offload: Offload
    clock: Clock
    topics: Topics
    link: PeerLink | None
    catalog: Catalog

    @property
    def image(self) -> ClusterImage: ...


class DeadLetters:
    def __init__(self, broker: DeadLetterBroker, *, spawn: Spawn) -> None:
        self._broker = broker
        self._spawn = spawn
        self._writing: set[SharePartition] = set()

    def on_dying(self, share: SharePartition) -> None:
        """Records of the share partition are dying, and that is stored."""
        if share not in self._writing:
            self._writing.add(share)
            self._spawn(self._write(share))

    async def _write(self, share: SharePartition) -> None:
        failures = 0
        try:
            while not share.is_gone and (dying := share.machine().dying_records()):
                try:
                    first = dying[0]
                    last = min(first.last, first.first + RECORDS_AT_ONCE - 1)
                    await self._write_letters(share, first, last)
                except (RequestError, StorageError, PeerUnreachable) as error:
                    failures += 1
                    pause_s = RETRY_S.delay(failures)
                    logger.warning(
                        "%s: dead letters of group %s wait, the next attempt is in %.1f s: %s",
                        share.partition.name,
                        share.key.group,
                        pause_s,
                        error,
                    )
                    await asyncio.sleep(pause_s)
                    continue
                failures = 0
                share.machine().on_letters_written(first.first, last)
                share.after_change()
        except RequestError:
            # It is gone: the next leader writes what is left.
            return
        finally:
            self._writing.discard(share)

    async def _write_letters(self, share: SharePartition, dying: DyingRecords, last: int) -> None:
        """
        Raises:
            RequestError, StorageError, PeerUnreachable: the letters are not committed, or nobody knows.
        """
        source, settings = share.partition.name, share.settings
        topic = settings.dead_letter_topic
        if topic is None or topic == source.topic:
            # A letter that dies in its own topic would die again.
            logger.info("%s: records of group %s end without a letter", source, share.key.group)
            return
        config, partition = await self._destination(topic, source.partition)
        batches = await self._broker.offload.run(lambda: self._read(share, dying.first, last))
        built = letters(
            DyingRecords(
                first=dying.first,
                last=last,
                delivery_count=dying.delivery_count,
                is_rejected=dying.is_rejected,
            ),
            records_among(batches, dying.first, last),
            source=source,
            group=share.key.group,
            copies_record=settings.dead_letter_copies_record,
            bytes_max=config.max_message_bytes,
            now_ms=self._broker.clock.now_ms(),
        )
        for batch, _ in build_batches(built, config, now_ms=self._broker.clock.now_ms()):
            await self._append(topic, partition, batch)

    async def _destination(self, name: str, source_partition: int) -> tuple[TopicConfig, int]:
        broker = self._broker
        topic = broker.image.topics.get(name)
        if topic is None:
            if not broker.settings.shares.errors_deadletterqueue_auto_create_topics_enable:
                raise UnknownTopicOrPartition(f"there is no topic {name}")
            overrides = {"errors.deadletterqueue.group.enable": "true"}
            topic = await broker.topics.create(name, overrides=overrides)
        config = broker.catalog.parse_config(topic.overrides)
        if is_internal(name) or not config.errors_deadletterqueue_group_enable:
            raise InvalidConfig(f"topic {name} has no errors.deadletterqueue.group.enable=true")
        return config, source_partition % len(topic.partitions)

    @staticmethod
    def _read(share: SharePartition, first: int, last: int) -> list[SharedBatch]:
        """The batches that have these records; in another thread."""
        log, found = share.partition.log, list[SharedBatch]()
        position = Offset(first)
        while position <= last:
            try:
                spec = ReadSpec(position, share.partition.high_watermark, READ_BYTES)
                batches = stored_batches(log.read(spec))
            except OffsetOutOfRange:
                # Retention was faster.
                position = Offset(max(position + 1, log.log_start))
                continue
            if not batches:
                break
            found += [one for one in batches if one.base_offset <= last]
            position = Offset(batches[-1].last_offset + 1)
        return found

    async def _append(self, topic: str, number: int, batch: RecordBatch) -> None:
        broker = self._broker
        leader = broker.image.topics[topic].partitions[number].serving_leader
        if broker.link is None or leader == broker.settings.broker_id:
            partition = broker.partitions.find_leader(topic, number)
            if partition.leader is not None:
                # As a producer with acks=all: one replica alone may lose it.
                partition.leader.check_writable()
            appended = partition.append(batch, now_ms=broker.clock.now_ms())
            await when_committed(partition.waiters, Offset(appended.last_offset + 1))
            return
        if leader is None:
            raise LeaderNotAvailable(f"{topic}-{number} has no leader")
        reply = await broker.link.ask(
            leader,
            Api.PRODUCE,
            PRODUCE_VERSION,
            channel=CHANNEL,
            transactional_id=None,
            acks=-1,
            timeout=PRODUCE_TIMEOUT_MS,
            topic_data=[
                {"name": topic, "partition_data": [{"index": number, "records": batch.data}]}
            ],
        )
        code = reply.responses[0].partition_responses[0].error_code
        error = error_for(code, by=leader)
        if error is not None:
            raise error
