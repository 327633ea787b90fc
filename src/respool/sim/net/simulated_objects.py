"""An object store in memory that fails as real ones do; time and chance come from the simulated world.

Reads and writes are throttled or refused, answers are lost after the write took place, creates answer "exists" without
having written, bytes come back with a flipped bit, the store is away, read-only, or has another clock.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from random import Random

from respool.model.archiving.archive_errors import ArchiveUnavailable, ObjectMissing
from respool.ports.clock import Clock
from respool.ports.object_store import Creation, ObjectInfo


@dataclass(slots=True, kw_only=True)
class ObjectFaults:
    """How often each fault happens, from 0 to 1; may be changed while the store is in use."""

    # Refused before anything was done: 500, 503.
    refused: float = 0.0
    # The write takes place, and its answer is lost.
    lost_answer: float = 0.0
    # A create that writes nothing and answers that the object exists (409).
    false_exists: float = 0.0
    # A write that is applied some time after its caller got no answer.
    late_write: float = 0.0
    # A read with one bit flipped.
    bit_flip: float = 0.0
    latency_ms_max: int = 0
    is_away: bool = False
    is_read_only: bool = False
    clock_skew_ms: int = 0

    def heal(self) -> None:
        self.refused = self.lost_answer = self.false_exists = self.late_write = self.bit_flip = 0.0
        self.is_away = self.is_read_only = False


class SimulatedObjects:
    """The bucket. Several brokers share it, each through a `SimulatedObjectStore`."""

    def __init__(self, *, rng: Random, clock: Clock) -> None:
        self.rng = rng
        self.clock = clock
        self.faults = ObjectFaults()
        self.objects: dict[str, tuple[bytes, int]] = {}
        # Every request, for tests that count them.
        self.requests: list[str] = []

    def put(self, key: str, content: bytes) -> None:
        self.objects[key] = content, self.clock.now_ms() + self.faults.clock_skew_ms

    def put_if_absent(self, key: str, content: bytes) -> bool:
        if key in self.objects:
            return False
        self.put(key, content)
        return True

    def chance(self, probability: float) -> bool:
        return bool(probability) and self.rng.random() < probability


class SimulatedObjectStore:
    address = "memory://archive"

    def __init__(self, shared: SimulatedObjects) -> None:
        self._shared = shared

    async def write(self, key: str, parts: AsyncIterator[bytes | memoryview]) -> None:
        content = b"".join([bytes(part) async for part in parts])
        await self._begin("write", key, is_write=True)
        self._shared.put(key, content)
        self._lose_answer("write", key)

    async def create(self, key: str, content: bytes) -> Creation:
        shared, faults = self._shared, self._shared.faults
        try:
            await self._begin("create", key, is_write=True)
        except ArchiveUnavailable as error:
            if error.kind == "denied":
                raise
            return Creation.UNKNOWN
        if shared.chance(faults.false_exists):
            return Creation.EXISTS
        if shared.chance(faults.late_write):
            delay_s = shared.rng.randrange(1, 20_000) / 1000
            asyncio.get_running_loop().call_later(delay_s, shared.put_if_absent, key, content)
            return Creation.UNKNOWN
        if not shared.put_if_absent(key, content):
            return Creation.EXISTS
        if shared.chance(faults.lost_answer):
            # The library's own retry meets what its first attempt wrote, or gets no answer either.
            return shared.rng.choice((Creation.EXISTS, Creation.UNKNOWN))
        return Creation.CREATED

    async def read(self, key: str, begin: int = 0, end: int | None = None) -> bytes:
        shared = self._shared
        await self._begin("read", key)
        if key not in shared.objects:
            raise ObjectMissing(f"{self.address} has no object {key}")
        data = shared.objects[key][0][begin:end]
        if data and shared.chance(shared.faults.bit_flip):
            flipped = bytearray(data)
            flipped[shared.rng.randrange(len(data))] ^= 1 << shared.rng.randrange(8)
            return bytes(flipped)
        return data

    async def list(self, prefix: str, *, after: str = "", limit: int = 1_000) -> list[ObjectInfo]:
        await self._begin("list", prefix)
        found = (
            ObjectInfo(key, len(content), modified_ms)
            for key, (content, modified_ms) in self._shared.objects.items()
            if key.startswith(prefix) and key > after
        )
        return sorted(found)[:limit]

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self._begin("delete", key, is_write=True)
            self._shared.objects.pop(key, None)

    async def close(self) -> None:
        pass

    async def _begin(self, call: str, key: str, *, is_write: bool = False) -> None:
        shared, faults = self._shared, self._shared.faults
        shared.requests.append(f"{call} {key}")
        if faults.latency_ms_max:
            await asyncio.sleep(shared.rng.randrange(faults.latency_ms_max + 1) / 1000)
        if faults.is_away:
            raise ArchiveUnavailable(f"{call} {key}: connection refused", kind="unreachable")
        if is_write and faults.is_read_only:
            raise ArchiveUnavailable(f"{call} {key}: AccessDenied", kind="denied")
        if shared.chance(faults.refused):
            raise ArchiveUnavailable(f"{call} {key}: 503 SlowDown", kind="throttled")

    def _lose_answer(self, call: str, key: str) -> None:
        if self._shared.chance(self._shared.faults.lost_answer):
            raise ArchiveUnavailable(f"{call} {key}: timed out", kind="timeout")
