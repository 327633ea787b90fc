"""What a filtered read needs of a log: `PartitionLog`, or a piece of an archived one."""

from typing import Protocol

from respool.log.partition_log import AbortedTransaction, ReadSpec
from respool.log.tagged_read import TagCursor, TaggedBatches
from respool.model.ids import Offset


class ScannedLog(Protocol):
    @property
    def first_base_offset(self) -> Offset: ...

    @property
    def truncations(self) -> int: ...

    def read(self, spec: ReadSpec) -> bytes | memoryview: ...

    def read_tagged(self, cursor: TagCursor, spec: ReadSpec) -> TaggedBatches | None: ...

    def has_aborted_from(self, offset: Offset) -> bool: ...

    def aborted_in(
        self, offset: Offset, end: Offset, *, cached_only: bool = False
    ) -> list[AbortedTransaction]: ...
