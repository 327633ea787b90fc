"""Caches pieces of archived segments: each is downloaded once for all readers, and verified before use.

Downloads belong to the cache, not to a request, so they continue when the request ends early.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from respool.archive.manifest_entry import ArchivedSegment
from respool.archive.segment_trailer import SegmentTrailer
from respool.model.archiving.archive_errors import (
    UNAVAILABLE_KINDS,
    ArchiveCorrupt,
    ArchiveUnavailable,
    ObjectMissing,
)
from respool.pacing.backoff import Backoff
from respool.ports.clock import Clock
from respool.ports.metrics import Counter, Metrics
from respool.ports.object_store import ObjectStore

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]

DOWNLOADS_AT_ONCE = 8
# Trailers have a budget of their own, so that a full rewind does not evict them.
TRAILER_BYTES_MAX = 16 * 1024 * 1024
_WAITS = Backoff(first=50, longest=2_000, jitter=0.0)
_Key: TypeAlias = tuple[str, int]
_TRAILER = -1


class ChunkCache:
    def __init__(
        self,
        store: ObjectStore,
        *,
        clock: Clock,
        spawn: Spawn,
        metrics: Metrics,
        bytes_max: int,
        patience_ms: int,
    ) -> None:
        """`patience_ms`: how long a download is retried before its readers get an error."""
        self._store = store
        self._clock = clock
        self._spawn = spawn
        self._bytes_max = bytes_max
        self._patience_ms = patience_ms
        # Least recently used first.
        self._chunks: OrderedDict[_Key, bytes | memoryview] = OrderedDict()
        self._trailers: OrderedDict[str, tuple[SegmentTrailer, int]] = OrderedDict()
        self._chunk_bytes = self._trailer_bytes = 0
        self._downloads: dict[_Key, asyncio.Future[Any]] = {}
        self._turns = asyncio.Semaphore(DOWNLOADS_AT_ONCE)
        self._hits = _reads(metrics, "hit")
        self._misses = _reads(metrics, "download")
        self._failures = {
            kind: metrics.counter(
                "respool_archive_read_failures_total",
                "Failed reads of the archive, by kind; they are retried.",
                kind=kind,
            )
            for kind in (*UNAVAILABLE_KINDS, "corrupt")
        }

    @property
    def bytes_used(self) -> int:
        return self._chunk_bytes

    @property
    def downloading(self) -> int:
        return len(self._downloads)

    async def trailer(self, segment: ArchivedSegment) -> SegmentTrailer:
        """
        Raises:
            ArchiveUnavailable, ArchiveCorrupt: it cannot be read.
        """
        found = self._trailers.get(segment.key)
        if found is not None:
            self._trailers.move_to_end(segment.key)
            return found[0]
        trailer: SegmentTrailer = await self._shared(
            (segment.key, _TRAILER), lambda: self._download_trailer(segment)
        )
        return trailer

    async def chunk(
        self, segment: ArchivedSegment, trailer: SegmentTrailer, number: int
    ) -> bytes | memoryview:
        """Raises as `trailer`."""
        key = (segment.key, number)
        found = self._chunks.get(key)
        if found is not None:
            self._chunks.move_to_end(key)
            self._hits.inc()
            return found
        chunk: bytes | memoryview = await self._shared(
            key, lambda: self._download_chunk(segment, trailer, number)
        )
        return chunk

    def has(self, segment: ArchivedSegment, number: int) -> bool:
        """True if the chunk is in memory, or on its way."""
        key = (segment.key, number)
        return key in self._chunks or key in self._downloads

    def read_ahead(self, segment: ArchivedSegment, trailer: SegmentTrailer, number: int) -> None:
        """Download a chunk that a reader will probably want next, if the budget for downloads allows."""
        if self.has(segment, number) or len(self._downloads) >= DOWNLOADS_AT_ONCE:
            return
        # No reader waits for it, so a failure is ignored.
        future = self._begin(
            (segment.key, number), lambda: self._download_chunk(segment, trailer, number)
        )
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _shared(self, key: _Key, download: Callable[[], Awaitable[Any]]) -> Any:
        future = self._downloads.get(key) or self._begin(key, download)
        return await asyncio.shield(future)

    def _begin(self, key: _Key, download: Callable[[], Awaitable[Any]]) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._downloads[key] = future
        self._spawn(self._run(key, future, download))
        return future

    async def _run(
        self, key: _Key, future: "asyncio.Future[Any]", download: Callable[[], Awaitable[Any]]
    ) -> None:
        try:
            async with self._turns:
                result = await self._patiently(download)
            future.set_result(result)
        except (ArchiveUnavailable, ArchiveCorrupt) as error:
            future.set_exception(error)
            # No reader is left to retrieve the exception.
            future.exception()
        finally:
            del self._downloads[key]
            if not future.done():
                future.cancel()

    async def _patiently(self, download: Callable[[], Awaitable[Any]]) -> Any:
        """Retry what may succeed later, including checksum errors: the bit may have flipped in transit."""
        deadline = self._clock.monotonic_ms() + self._patience_ms
        failures = 0
        while True:
            try:
                return await download()
            except (ArchiveUnavailable, ArchiveCorrupt) as error:
                failures += 1
                kind = error.kind if isinstance(error, ArchiveUnavailable) else "corrupt"
                self._failures[kind].inc()
                is_hopeless = isinstance(error, ArchiveCorrupt) and failures >= 3
                if is_hopeless or self._clock.monotonic_ms() >= deadline:
                    raise
            await asyncio.sleep(_WAITS.delay(failures) / 1000)

    async def _download_trailer(self, segment: ArchivedSegment) -> SegmentTrailer:
        data = await self._read(segment, segment.log_bytes, segment.size)
        trailer = SegmentTrailer.decode(data, name=segment.key)
        if (
            trailer.base != segment.base
            or trailer.next < segment.next
            or trailer.log_bytes != segment.log_bytes
            or int.from_bytes(data[-4:], "big") != segment.trailer_crc
        ):
            raise ArchiveCorrupt(
                f"{segment.key}: its trailer is not the one that the manifest names"
            )
        self._trailers[segment.key] = trailer, len(data)
        self._trailer_bytes += len(data)
        while self._trailer_bytes > TRAILER_BYTES_MAX and len(self._trailers) > 1:
            _, (_, size) = self._trailers.popitem(last=False)
            self._trailer_bytes -= size
        return trailer

    async def _download_chunk(
        self, segment: ArchivedSegment, trailer: SegmentTrailer, number: int
    ) -> bytes | memoryview:
        begin = number * trailer.chunk_bytes
        data = await self._read(segment, begin, min(begin + trailer.chunk_bytes, segment.log_bytes))
        trailer.check_chunk(number, data, name=segment.key)
        self._misses.inc()
        self._keep((segment.key, number), data)
        return data

    def _keep(self, key: _Key, data: bytes | memoryview) -> None:
        self._chunks[key] = data
        self._chunk_bytes += len(data)
        while self._chunk_bytes > self._bytes_max and len(self._chunks) > 1:
            _, dropped = self._chunks.popitem(last=False)
            self._chunk_bytes -= len(dropped)

    async def _read(self, segment: ArchivedSegment, begin: int, end: int) -> bytes | memoryview:
        try:
            data = await self._store.read(segment.key, begin, end)
        except ObjectMissing as error:
            raise ArchiveCorrupt(f"{error}, but the manifest names it") from error
        if len(data) != end - begin:
            # Stores cut a range that reaches beyond the object's end.
            raise ArchiveCorrupt(
                f"{segment.key}: {len(data)} of {end - begin} bytes at byte {begin}"
            )
        return data


def _reads(metrics: Metrics, source: str) -> Counter:
    return metrics.counter(
        "respool_archive_chunk_reads_total",
        "Pieces of archived segments that readers asked for, by where they came from: hit (memory) or download.",
        source=source,
    )
