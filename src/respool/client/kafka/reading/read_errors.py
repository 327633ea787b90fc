"""The errors of reading, which the message clients raise too: importing them brings no connection and no decoder."""

from respool.client.kafka.errors import ClientError


class ReadError(ClientError):
    """A read cannot begin or continue. `offset` is the first unread offset of this partition."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int | None) -> None:
        super().__init__(f"{topic}/{partition}: {message}")
        self.topic = topic
        self.partition = partition
        self.offset = offset


class OutsideRetention(ReadError):
    """Requested messages have been deleted. `first_offset` and `first_time_ms` describe the first one left."""

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        offset: int | None,
        first_offset: int,
        first_time_ms: int | None = None,
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset)
        self.first_offset = first_offset
        self.first_time_ms = first_time_ms


class RetentionOvertook(OutsideRetention):
    """Messages were deleted while they were being read: the reader was too slow, or an administrator deleted them."""


class OffsetBeyondEnd(ReadError):
    """The read would begin beyond the log end."""


class LogTruncated(ReadError):
    """Messages that were already returned are no longer in the log: a replica without them became leader."""


class TopicRecreated(ReadError):
    """The topic was deleted and recreated while it was read; its offsets now belong to other messages."""


class PartitionRetired(ReadError):
    """The partition was sealed, and taken away with messages that were not read yet."""


class BatchDamaged(ReadError):
    """A batch cannot be decoded; everything before `offset` was returned. The cause says what is wrong with it."""


class PartitionUnavailable(ReadError):
    """No broker served the partition for `retry_ms`. Everything before `offset` was returned."""
