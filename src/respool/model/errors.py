"""Three families of errors, by who must act.

- `RequestError`: the client. It becomes a Kafka error code in a reply; raised deep, translated once. Those of the group
  and transaction coordinators are in `coordinator_errors.py`, those of logins and ACLs in
  `security/security_errors.py`.
- `StorageError`: the operator. The partition goes offline, the broker keeps running.
- `SettingsError`: the person who started the broker. It names the setting and a valid value.

`ReplicationDiverged` is internal: after it, a follower finds out where its log and the leader's diverge.

A broken invariant is an `assert`, and is never caught.
"""

from typing import ClassVar

MESSAGE_LENGTH_MAX = 1_000


class RespoolError(Exception):
    """Base class of everything that Respool raises on purpose."""


class RequestError(RespoolError):
    """A request that cannot be granted, with the code Kafka's clients know it by."""

    code: ClassVar[int]
    retriable: ClassVar[bool] = False

    @property
    def message(self) -> str:
        """The message for the client: the error's own text if there is one, else the docstring of its class.

        Truncated, because it may contain names that clients sent, and a reply has room for 32 KB.
        """
        return (str(self) or (type(self).__doc__ or "").strip())[:MESSAGE_LENGTH_MAX]


class RecordsRefused(RequestError):
    """Records break a rule, and with them their whole batch is refused (KIP-467)."""

    # The maximum number of a batch's records that are named.
    RECORDS_MAX = 1_000

    def __init__(self, message: str = "", *, records: tuple[tuple[int, str], ...] = ()) -> None:
        """`records` are the index in the batch, and the reason, of those that break it; none if it is the batch."""
        super().__init__(message)
        assert len(records) <= self.RECORDS_MAX
        self.records = records


class OffsetOutOfRange(RequestError):
    """The offset lies before the log's start or beyond its end."""

    code = 1


class CorruptMessage(RequestError):
    """The batch fails its checksum or its sizes do not fit together."""

    code = 2
    retriable = True


class UnknownTopicOrPartition(RequestError):
    """This broker has no such topic or partition."""

    code = 3
    retriable = True


class LeaderNotAvailable(RequestError):
    """Nobody leads the partition now; the client should ask again."""

    code = 5
    retriable = True


class ListenerNotFound(RequestError):
    """The partition's leader has no listener of the name that the client uses."""

    code = 72
    retriable = True


class NotLeader(RequestError):
    """This broker does not lead the partition; the client should refresh its metadata."""

    code = 6
    retriable = True


class RequestTimedOut(RequestError):
    """What the request waits for did not come in time; it may still happen."""

    code = 7
    retriable = True


class ReplicaNotAvailable(RequestError):
    """This broker has no replica of the partition, or not yet."""

    code = 9
    retriable = True


class MessageTooLarge(RequestError):
    """The batch is larger than the topic's max.message.bytes."""

    code = 10


class InvalidTopic(RequestError):
    """The topic's name cannot be a topic name, or the topic is not for clients to write."""

    code = 17


class NotEnoughReplicas(RequestError):
    """Fewer replicas are in sync than min.insync.replicas asks for; nothing was written."""

    code = 19
    retriable = True


class InvalidRequiredAcks(RequestError):
    """acks must be 0, 1 or -1 (all)."""

    code = 21


class InvalidTimestamp(RecordsRefused):
    """A record's timestamp is further from the broker's clock than the topic allows."""

    code = 32


class TimestampOutOfRange(InvalidTimestamp):
    """Some records' timestamps are not in the allowed range; only the batch's header was read."""

    def __init__(self, timestamp: int, *, oldest: int, newest: int) -> None:
        super().__init__(f"timestamp {timestamp} is outside {oldest} to {newest}")
        self.oldest = oldest
        self.newest = newest


class UnsupportedVersion(RequestError):
    """The API does not exist here, or not in this version."""

    code = 35


class TopicAlreadyExists(RequestError):
    """There is a topic of this name."""

    code = 36


class InvalidPartitions(RequestError):
    """The number of partitions is invalid."""

    code = 37


class InvalidReplicationFactor(RequestError):
    """There are fewer brokers than replicas asked for."""

    code = 38


class InvalidReplicaAssignment(RequestError):
    """The replicas named for a partition are invalid."""

    code = 39


class InvalidConfig(RequestError):
    """A setting is unknown, or its value cannot be."""

    code = 40


class InvalidRequest(RequestError):
    """The request contradicts itself."""

    code = 42


class UnsupportedForMessageFormat(RequestError):
    """Record batches before format v2 (Kafka 0.11) are not stored."""

    code = 43


class PolicyViolation(RequestError):
    """The broker's settings do not allow this."""

    code = 44


class OutOfOrderSequence(RequestError):
    """A producer's batch does not follow its last one; a batch between them is missing."""

    code = 45


class InvalidProducerEpoch(RequestError):
    """A newer producer has taken this producer's id over."""

    code = 47


class OperationNotAttempted(RequestError):
    """Something else in the request failed, so this was not tried."""

    code = 55


class StorageFailed(RequestError):
    """The partition is offline: its disk failed or its log is damaged. The broker's log tells which."""

    code = 56
    retriable = True


class LogDirNotFound(RequestError):
    """The broker has no data folder of this name."""

    code = 57


class FetchSessionNotFound(RequestError):
    """The fetch session was evicted or never existed; the client starts a new one."""

    code = 70
    retriable = True


class InvalidFetchSessionEpoch(RequestError):
    """The fetch session's epoch is not the one that comes next."""

    code = 71
    retriable = True


class FencedLeaderEpoch(RequestError):
    """The client knows an older leader than the current one; it should refresh its metadata."""

    code = 74
    retriable = True


class UnknownLeaderEpoch(RequestError):
    """The client knows a newer leader than this broker; this broker is behind."""

    code = 75
    retriable = True


class UnsupportedCompressionType(RequestError):
    """The codec is unknown, or the request's version is too old for it."""

    code = 76


class OffsetNotAvailable(RequestError):
    """The leader does not know yet how far its log is committed."""

    code = 78
    retriable = True


class PreferredLeaderNotAvailable(RequestError):
    """The broker that should lead the partition does not run or is not in sync."""

    code = 80
    retriable = True


class EligibleLeadersNotAvailable(RequestError):
    """No broker that holds the partition runs."""

    code = 83
    retriable = True


class ElectionNotNeeded(RequestError):
    """The partition is led as it should be."""

    code = 84


class ReassignmentInProgress(RequestError):
    """The partition's replicas are being moved."""

    code = 60


class NoReassignmentInProgress(RequestError):
    """The partition's replicas are not being moved."""

    code = 85


class InvalidRecord(RecordsRefused):
    """A record or batch breaks a rule of its topic or of the format."""

    code = 87


class InvalidUpdateVersion(RequestError):
    """The feature cannot have this level."""

    code = 95


class UnknownTopicId(RequestError):
    """This broker has no topic with that id."""

    code = 100
    retriable = True


class BrokerIsLive(RequestError):
    """The broker runs, so it cannot be removed. The code is Kafka's for a broker id that is in use."""

    code = 101


class BrokerIdNotRegistered(RequestError):
    """The cluster has no such broker."""

    code = 102


class FetchSessionTopicIdMismatch(RequestError):
    """The fetch session was made with topic names and continued with ids, or the other way."""

    code = 106
    retriable = True


class MismatchedEndpointType(RequestError):
    """The client wants controllers, and this is a broker."""

    code = 114


class UnsupportedEndpointType(RequestError):
    """There is no such type of endpoint."""

    code = 115


class RebootstrapRequired(RequestError):
    """The client meant to reach another broker or cluster; it should look for the brokers again."""

    code = 129


class StorageError(RespoolError):
    """The disk failed to do what a log needs; the affected partition goes offline."""


class DiskFailed(StorageError):
    """The operating system reported an I/O error."""


class DiskFull(StorageError):
    """The disk is full; a partial write has been truncated."""


class HandlesExhausted(StorageError):
    """Too many open files, or no memory to open one. Nothing was changed; the error is transient."""


class NothingTruncated(StorageError):
    """A truncation could not be recorded: the disk is full, or too many files are open. The log is unchanged, and the
    truncation may be retried.
    """


class SegmentCorrupt(StorageError):
    """A completely written batch fails its checksum."""


class CheckpointDamaged(StorageError):
    """A checkpoint file cannot be read; its values must be recovered from the logs."""


class PartitionFolderUnclear(StorageError):
    """A partition's folder has data, but its partition.metadata is missing or damaged."""


class PartitionFolderMissing(StorageError):
    """The folder of a partition that had messages is missing or empty."""


class DataFolderInUse(StorageError):
    """Another process uses the data folder."""


class DataFolderMismatch(StorageError):
    """The data folder belongs to another broker, cluster or layout version."""


class ReplicationDiverged(RespoolError):
    """A leader's batches do not continue this log: offsets overlap, or an older leader's batch follows a newer's.

    Nothing was written. The follower compares its epochs with the leader's again, and truncates at the divergence.
    """


class SettingsError(RespoolError):
    """A setting is unknown, has a wrong type or contradicts another."""
