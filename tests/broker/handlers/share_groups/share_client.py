"""A member of a share group that sends single requests to a broker in the test's own process."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from broker.running_broker import RunningBroker
from respool.broker.share.share_sessions import ShareTarget
from respool.model.errors import RequestError
from respool.model.ids import TopicId
from respool.records.batch import RecordBatch, read_header
from respool.records.record import read_records
from respool.wire.api_table import Api

BYTES_MAX = 50 * 1024 * 1024
Range = tuple[int, int, int]


@dataclass
class ShareMember:
    broker: RunningBroker
    name: str = "one"
    group: str = "billing"
    topic: str = "orders"
    epoch: int = 0
    version: int = 2

    def join(self) -> None:
        reply = self.broker.ask(
            Api.SHARE_GROUP_HEARTBEAT,
            1,
            group_id=self.group,
            member_id=self.name,
            member_epoch=0,
            rack_id=None,
            subscribed_topic_names=(self.topic,),
        )
        assert reply.error_code == 0, reply

    @property
    def topic_id(self) -> UUID:
        known = self.broker.broker.image.readable(self.topic)
        assert known is not None
        return known.id

    def named(self, partition: int = 0, *batches: tuple[int, int, Any]) -> dict[str, Any]:
        return {
            "topic_id": self.topic_id,
            "partitions": [
                {
                    "partition_index": partition,
                    "acknowledgement_batches": [
                        {
                            "first_offset": first,
                            "last_offset": last,
                            "acknowledge_types": types if isinstance(types, tuple) else (types,),
                        }
                        for first, last, types in batches
                    ],
                }
            ],
        }

    def fields(self, *batches: tuple[int, int, Any], **fields: Any) -> dict[str, Any]:
        """The fields of the next ShareFetch; the session's epoch advances."""
        is_first = self.epoch == 0
        request = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": BYTES_MAX,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [self.named(0, *batches)] if is_first or batches else [],
            "forgotten_topics_data": [],
        } | fields
        self.epoch += 1
        return request

    def load(self) -> None:
        """The broker has the share partition in memory: a fetch that waits for nothing finds it."""

        async def wait() -> None:
            shares = self.broker.broker.shares
            with suppress(RequestError):
                await shares.find(self.group, ShareTarget(TopicId(self.topic_id), 0)).loaded

        self.broker.run(wait())

    def fetch(self, *batches: tuple[int, int, Any], **fields: Any) -> Any:
        if self.epoch == 0:
            self.load()
        return self.broker.ask(Api.SHARE_FETCH, self.version, **self.fields(*batches, **fields))

    def take(self, *batches: tuple[int, int, Any], **fields: Any) -> list[Range]:
        """Fetch, and return what was acquired of partition 0."""
        reply = self.fetch(*batches, **fields)
        assert reply.error_code == 0, reply
        if not reply.responses:
            return []
        (answer,) = reply.responses[0].partitions
        assert (answer.error_code, answer.acknowledge_error_code) == (0, 0), answer
        ranges = acquired(answer)
        offsets = set(offsets_of(answer.records or b""))
        # Whatever is acquired is in the answer.
        assert all(offset in offsets for first, last, _ in ranges for offset in (first, last))
        return ranges

    def acknowledge(self, *batches: tuple[int, int, Any], **fields: Any) -> Any:
        request = {
            "group_id": self.group,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "is_renew_ack": False,
            "topics": [self.named(0, *batches)] if batches else [],
        } | fields
        self.epoch += 1
        return self.broker.ask(Api.SHARE_ACKNOWLEDGE, self.version, **request)


def acquired(answer: Any) -> list[Range]:
    return [
        (one.first_offset, one.last_offset, one.delivery_count) for one in answer.acquired_records
    ]


def offsets_of(data: bytes) -> list[int]:
    found: list[int] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        batch = RecordBatch(header, data[position : position + header.size])
        found += [one.offset for one in read_records(batch, limit=2**30)]
        position += header.size
    return found
