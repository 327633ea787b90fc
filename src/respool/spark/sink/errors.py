"""What writing from Spark can end with, beside what the columnar client says. Each tells what is in, and what to do."""

from respool.model.errors import RespoolError


class SinkError(RespoolError):
    """A write from Spark cannot go on."""


class Superseded(SinkError):
    """Another run of the same query writes now. This one has written nothing that counts."""


class CheckpointBehind(SinkError):
    """The query is about to write a batch that is older than what the topic has of it."""


class BatchGivenUp(SinkError):
    """The batch was given up, and then somebody wanted to make it count."""


class TransactionGone(SinkError):
    """A task's transaction ended before the batch was decided. Nothing of the batch counts."""


class DecidedLost(SinkError):
    """A batch was decided, and one of its transactions ended before it could be committed."""


class RepairMismatch(SinkError):
    """Part of a batch was lost after it was decided, and writing it again gives other rows than before."""


class OutcomeUnknown(SinkError):
    """Nobody knows any more whether a decided transaction was committed."""


class DeciderFenced(SinkError):
    """Another process has begun to change the state of this sink."""


class StateDamaged(SinkError):
    """The record that says what a query has written cannot be read."""


class NotSupported(SinkError):
    """The brokers cannot do what exactly-once writing needs."""
