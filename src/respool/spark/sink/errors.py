"""Errors of writes from Spark, in addition to those of the Arrow client. Each says what was written, and what to do."""

from respool.model.errors import RespoolError


class SinkError(RespoolError):
    """A write from Spark cannot continue."""


class Superseded(SinkError):
    """Another run of the same query has taken over. Nothing of this run's batch is committed."""


class CheckpointBehind(SinkError):
    """The query is about to write a batch that is older than its last one in the topic."""


class BatchFailed(SinkError):
    """The batch was abandoned, and later an attempt was made to commit it."""


class TransactionGone(SinkError):
    """A task's transaction ended before the batch was decided. Nothing of the batch is committed."""


class DecidedLost(SinkError):
    """A batch was decided, and one of its transactions ended before it could be committed."""


class RepairMismatch(SinkError):
    """Part of a batch was lost after it was decided, and writing it again produces different rows."""


class OutcomeUnknown(SinkError):
    """It is no longer known whether a decided transaction was committed."""


class DeciderFenced(SinkError):
    """Another process has become the decider of this sink."""


class StateDamaged(SinkError):
    """The record with a query's state cannot be read."""


class NotSupported(SinkError):
    """The brokers lack a feature that exactly-once writes need."""
