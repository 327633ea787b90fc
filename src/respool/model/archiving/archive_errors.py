"""Errors of archives, by who must act."""

from respool.model.errors import RequestError, RespoolError, StorageFailed

# The kinds of failures, for metrics.
UNAVAILABLE_KINDS = (
    "missing_bucket",
    "denied",
    "clock",
    "throttled",
    "timeout",
    "unreachable",
    "failed",
)


class ArchiveUnavailable(RespoolError):
    """The object store failed; a retry may succeed.

    `kind` is one of UNAVAILABLE_KINDS.
    """

    def __init__(self, message: str, *, kind: str = "failed") -> None:
        super().__init__(message)
        assert kind in UNAVAILABLE_KINDS, kind
        self.kind = kind


class ObjectMissing(RespoolError):
    """The object store has no object with this key."""


class ArchiveCorrupt(RespoolError):
    """Archived bytes are damaged: a checksum, a size or a number does not match. An operator must act."""


class ArchiveRefused(RespoolError):
    """The archive's address cannot be used as it is; the message says what to change."""


class NotLocal(StorageFailed):
    """The records are in the archive only.

    Readers of the archive catch it. If nothing does, clients get KAFKA_STORAGE_ERROR and retry: an
    OFFSET_OUT_OF_RANGE would make them skip records that exist.
    """


class ArchivedReadFailed(RequestError):
    """Archived records cannot be read now: the store is unavailable, or its objects are damaged."""

    code = 56
    retriable = True
