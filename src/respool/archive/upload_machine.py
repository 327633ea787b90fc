"""Decides the next step of a leader that archives a partition. Events in, effects out; one effect at a time.

```
IDLE --begin--> UPLOADING --on_uploaded--> COMMITTING --CREATED--> IDLE (the archive's end moves)
                    | on_failed: backoff        | EXISTS or UNKNOWN, or failed: backoff
                    v                           v
                   IDLE                      LOOKING at entry n+1
      my token         -> it was created        absent -> COMMITTING n+1 again, with the same content
      a higher epoch   -> FENCED                no answer -> LOOKING again, after a backoff
      another's        -> folded; COMMITTING n+2 if my segment still begins where the archive ends, else IDLE
```
Stores may answer "exists" to a writer whose own first attempt succeeded, and a lost answer leaves the outcome unknown:
in both cases the entry must be read. An object whose entry was not created is an orphan; its name is never used again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from respool.archive.manifest import Manifest
from respool.archive.manifest_entry import (
    ArchivedSegment,
    CutEntry,
    LogStartEntry,
    ManifestEntry,
    decode_entry,
    encode_entry,
)
from respool.model.ids import LeaderEpoch
from respool.pacing.backoff import Backoff, no_jitter
from respool.ports.object_store import Creation


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadObject:
    """Write the segment's object; then `on_uploaded` or `on_failed`."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateEntry:
    """Create the object of this entry; then `on_creation`, or `on_failed` if it was refused for certain."""

    number: int
    key: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEntry:
    """Read the object of this entry; then `on_read`, or `on_failed` if there is no answer."""

    number: int
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitThenRetry:
    """Call `retry` after this delay."""

    delay_ms: int


Effect: TypeAlias = UploadObject | CreateEntry | ReadEntry | WaitThenRetry


class UploadState(Enum):
    IDLE = "idle"
    UPLOADING = "uploading"
    COMMITTING = "committing"
    LOOKING = "looking"
    # Another leader has a higher epoch: this one writes nothing more.
    FENCED = "fenced"
    # The manifest contradicts itself: nothing is written or deleted until an operator decides.
    BROKEN = "broken"


class UploadMachine:
    def __init__(
        self,
        manifest: Manifest,
        *,
        leader_epoch: LeaderEpoch,
        retry_ms_max: int,
        random: Callable[[], float] = no_jitter,
    ) -> None:
        self.manifest = manifest
        self._leader_epoch = leader_epoch
        self._backoff = Backoff(first=min(100, retry_ms_max), longest=retry_ms_max, jitter=0.3)
        self._random = random
        self.state = UploadState.IDLE
        if manifest.leader_epoch > leader_epoch:
            self.state = UploadState.FENCED
        # The entry being written; None if there is none.
        self._entry: ManifestEntry | None = None
        self.failures = 0

    @property
    def is_idle(self) -> bool:
        return self.state is UploadState.IDLE

    @property
    def is_over(self) -> bool:
        return self.state in {UploadState.FENCED, UploadState.BROKEN}

    def begin_upload(self, key: str) -> Effect:
        """Upload a segment that begins where the archive ends."""
        assert self.is_idle, self.state
        self.state = UploadState.UPLOADING
        return UploadObject(key=key)

    def on_uploaded(self, entry: ArchivedSegment) -> Effect | None:
        assert self.state is UploadState.UPLOADING, self.state
        self.failures = 0
        self.state = UploadState.IDLE
        return self.begin_entry(entry)

    def begin_entry(self, entry: ManifestEntry) -> Effect | None:
        """Write an entry; None if it is not needed any more."""
        assert self.is_idle, self.state
        assert entry.by.leader_epoch == self._leader_epoch, (entry.by, self._leader_epoch)
        if not self._is_wanted(entry):
            return None
        self._entry = entry
        return self._commit()

    def on_creation(self, outcome: Creation) -> Effect | None:
        assert self.state is UploadState.COMMITTING, self.state
        if outcome is Creation.CREATED:
            assert self._entry is not None
            return self._fold(self._entry)
        return self._look()

    def on_read(self, content: bytes | memoryview | None) -> Effect | None:
        """Entry n+1 was read; None if it does not exist."""
        assert self.state is UploadState.LOOKING, self.state
        assert self._entry is not None
        number = self.manifest.next_number
        if content is None:
            # A write that is still under way has the same content, so whichever succeeds is this entry.
            self.state = UploadState.COMMITTING
            return self._retry_later()
        found = decode_entry(content, self.manifest.keys, name=self.manifest.keys.entry(number))
        return self._fold(found)

    def on_failed(self) -> Effect | None:
        """The effect failed, or its outcome is unknown."""
        assert self.state in {
            UploadState.UPLOADING,
            UploadState.COMMITTING,
            UploadState.LOOKING,
        }, self.state
        if self.state is UploadState.UPLOADING:
            # The next attempt has another name: a late write of this one replaces nothing.
            self.failures += 1
            self.state = UploadState.IDLE
            return None
        self.state = UploadState.LOOKING
        return self._retry_later()

    def retry(self) -> Effect:
        assert self.state in {UploadState.COMMITTING, UploadState.LOOKING}, self.state
        return self._commit() if self.state is UploadState.COMMITTING else self._look()

    def on_broken(self) -> None:
        """The manifest contradicts itself."""
        self._entry = None
        self.state = UploadState.BROKEN

    @property
    def retry_delay_ms(self) -> int:
        """How long to wait after the last failure."""
        if not self.failures:
            return 0
        return int(self._backoff.delay(self.failures, random=self._random))

    def _commit(self) -> Effect:
        assert self._entry is not None
        self.state = UploadState.COMMITTING
        number = self.manifest.next_number
        return CreateEntry(
            number=number, key=self.manifest.keys.entry(number), content=encode_entry(self._entry)
        )

    def _look(self) -> Effect:
        self.state = UploadState.LOOKING
        number = self.manifest.next_number
        return ReadEntry(number=number, key=self.manifest.keys.entry(number))

    def _retry_later(self) -> Effect:
        self.failures += 1
        return WaitThenRetry(delay_ms=self.retry_delay_ms)

    def _fold(self, found: ManifestEntry) -> Effect | None:
        """Entry n+1 is this one: mine or another leader's."""
        mine = self._entry
        assert mine is not None
        self.manifest.apply(self.manifest.next_number, found)
        self.failures = 0
        if found.by.token == mine.by.token:
            self._end()
            return None
        if found.by.leader_epoch > self._leader_epoch:
            self._entry = None
            self.state = UploadState.FENCED
            return None
        if self._is_wanted(mine):
            return self._commit()
        self._end()
        return None

    def _end(self) -> None:
        self._entry = None
        self.state = UploadState.IDLE

    def _is_wanted(self, entry: ManifestEntry) -> bool:
        manifest = self.manifest
        if isinstance(entry, ArchivedSegment):
            return manifest.archived_end in {None, entry.base}
        if isinstance(entry, LogStartEntry):
            return entry.log_start > manifest.log_start
        assert isinstance(entry, CutEntry)
        return manifest.archived_end is not None and entry.end < manifest.archived_end
