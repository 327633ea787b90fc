"""The part of a fetch that is only in the archive: collected while partitions are read, then awaited together.

```
1. PartitionRead finds that an offset is not local: `take` notes what is wanted, and the partition gets no records yet
2. FetchRun waits for all of it at once, at most for `archive_fetch_wait_ms`; downloads continue after that
3. all partitions are read again, within the reply's limits: `take` returns what has come
```
"""

import asyncio
from dataclasses import dataclass

from respool.archive.batch_window import find_window
from respool.broker.archive.archive import Archive
from respool.broker.archive.archived_reads import ArchivedBatches
from respool.broker.fetch.sessions import TopicRef
from respool.broker.partitions.partition import Partition
from respool.log.partition_log import ReadSpec
from respool.model.archiving.archive_errors import ArchivedReadFailed
from respool.model.errors import RequestError
from respool.model.ids import Offset

# Bytes of one reply that are asked of the archive at the same time.
BYTES_AT_ONCE = 16 * 1024 * 1024


@dataclass(slots=True)
class ArchivedWant:
    partition: Partition
    spec: ReadSpec
    with_aborted: bool
    result: ArchivedBatches | RequestError | None = None


class ArchivedPart:
    def __init__(self, archive: Archive | None) -> None:
        self._archive = archive
        self._wants: dict[tuple[TopicRef, int], ArchivedWant] = {}
        self._bytes_wanted = 0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_waited_for(self) -> bool:
        return any(one.result is None for one in self._wants.values())

    def take(
        self,
        key: tuple[TopicRef, int],
        partition: Partition,
        spec: ReadSpec,
        *,
        with_aborted: bool,
    ) -> ArchivedBatches | None:
        """Return what was downloaded, cut to the limits of `spec`; None: it was requested, or there is no room for it.

        Raises:
            RequestError: it cannot be read.
        """
        if self._archive is None:
            raise ArchivedReadFailed(
                f"{partition.name}: offset {spec.offset} is archived, and this broker has no archive: set archive"
            )
        if spec.bytes_max <= 0:
            return None
        want = self._wants.get(key)
        if want is None or want.spec.offset != spec.offset:
            if self._bytes_wanted < BYTES_AT_ONCE:
                self._bytes_wanted += spec.bytes_max
                self._wants[key] = ArchivedWant(partition, spec, with_aborted)
            return None
        if isinstance(want.result, RequestError):
            raise want.result
        if want.result is None:
            return None
        return _cut(want.result, spec)

    async def wait(self, wait_s: float) -> None:
        """Wait for the requested records; downloads that take longer still end up in memory."""
        self._tasks += [
            asyncio.ensure_future(self._fetch(one))
            for one in self._wants.values()
            if one.result is None
        ]
        running = [one for one in self._tasks if not one.done()]
        if running:
            await asyncio.wait(running, timeout=wait_s)

    def end(self) -> None:
        """The request has ended. Downloads belong to the archive, and continue."""
        for one in self._tasks:
            one.cancel()

    async def _fetch(self, want: ArchivedWant) -> None:
        assert self._archive is not None
        spec = want.spec
        try:
            want.result = await self._archive.read(
                want.partition,
                spec.offset,
                max_offset=spec.max_offset,
                bytes_max=spec.bytes_max,
                with_aborted=want.with_aborted,
                with_empty=spec.with_empty,
            )
        except RequestError as error:
            want.result = error


def _cut(found: ArchivedBatches, spec: ReadSpec) -> ArchivedBatches | None:
    """Earlier partitions may have filled the reply: only its first batch may exceed the limit."""
    if len(found.records) <= spec.bytes_max:
        return found
    view = memoryview(found.records)
    window = find_window(
        view,
        offset=spec.offset,
        max_offset=Offset(2**63 - 1),
        bytes_max=spec.bytes_max,
        at_least_one=spec.at_least_one,
        with_empty=spec.with_empty,
    )
    if window.end == window.begin:
        return None
    return found._replace(records=found.records[window.begin : window.end], end=window.next_offset)
