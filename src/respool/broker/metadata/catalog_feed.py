"""A copy of the metadata store: read once, then updated change by change.

This broker sees its own writes immediately. The watch delivers them again, perhaps after older changes: a key never
returns to its value before our own write.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import NoReturn

from respool.pacing.rate_limited_log import RateLimitedLog
from respool.ports.metadata_store import (
    CompactedRevision,
    Guard,
    KeyChanged,
    MetadataStore,
    Snapshot,
    StoredValue,
    StoreUnavailable,
)

logger = logging.getLogger(__name__)

ALL = "/"
RETRY_DELAY_S = 0.5
# Keys of one write that become visible in one step; more would keep the event loop busy for too long.
APPLIED_AT_ONCE = 150


class CatalogFeed:
    def __init__(
        self, store: MetadataStore, *, on_changed: Callable[[frozenset[str]], None]
    ) -> None:
        """`on_changed` gets the changed keys, after `values` was updated."""
        self._store = store
        self._on_changed = on_changed
        self.values: dict[str, StoredValue] = {}
        # The store's changes are known up to this revision.
        self.revision = 0
        # Our own writes that the watch has not delivered yet.
        self._own: dict[str, int] = {}
        # The revision of the newest snapshot, which contains all changes up to it.
        self._loaded = 0
        # Keys that changed here while snapshots are being read, with their revisions.
        self._news: dict[str, int] = {}
        self._loads_under_way = 0
        # The outcome of a write is unknown; load() finds out.
        self.is_doubtful = False
        self._absence = RateLimitedLog(logger)

    async def load(self) -> None:
        """Read everything; also called after changes were missed.

        Raises:
            StoreUnavailable: nothing was read.
        """
        was_doubtful, self.is_doubtful = self.is_doubtful, False
        self._loads_under_way += 1
        try:
            snapshot = await self._store.snapshot(ALL)
            # Ignore a snapshot that is older than the last one applied.
            if snapshot.revision >= self._loaded:
                self._replace_by(snapshot)
        except StoreUnavailable:
            self.is_doubtful = was_doubtful or self.is_doubtful
            raise
        finally:
            self._loads_under_way -= 1
            if not self._loads_under_way:
                self._news.clear()

    def _replace_by(self, snapshot: Snapshot) -> None:
        before, values = self.values, dict(snapshot.values)
        self._own = {key: one for key, one in self._own.items() if one > snapshot.revision}
        # Changes since the snapshot are newer than its values and will not be delivered again.
        for key, revision in (*self._news.items(), *self._own.items()):
            if revision <= snapshot.revision:
                continue
            if key in before:
                values[key] = before[key]
            else:
                values.pop(key, None)
        self.values = values
        self._loaded = snapshot.revision
        self.revision = max(self.revision, snapshot.revision)
        changed = {
            key
            for key in before.keys() | self.values.keys()
            if before.get(key) != self.values.get(key)
        }
        if changed:
            self._on_changed(frozenset(changed))

    async def write(
        self,
        *,
        guards: Sequence[Guard] = (),
        puts: Mapping[str, bytes] | None = None,
        deletes: Sequence[str] = (),
        lease: int | None = None,
    ) -> int:
        """Write all or nothing: see `MetadataStore.transact`. The change is visible here when this returns."""
        try:
            revision = await self._store.transact(
                guards=guards, puts=puts, deletes=deletes, lease=lease
            )
        except (StoreUnavailable, asyncio.CancelledError):
            self.is_doubtful = True
            raise
        if revision <= self.revision:
            # The reply is late: the watch has delivered this write, and perhaps later changes of the same keys.
            return revision
        waiting = iter([*(puts or {}).items(), *((key, None) for key in deletes)])
        while some := list(islice(waiting, APPLIED_AT_ONCE)):
            self._apply_own(some, revision)
            if len(some) == APPLIED_AT_ONCE:
                # Serve requests before the next ones.
                await asyncio.sleep(0)
        return revision

    def _apply_own(self, changes: Iterable[tuple[str, bytes | None]], revision: int) -> None:
        changed = set()
        for key, value in changes:
            if value is not None:
                if self._is_news(key, revision):
                    self._own[key] = revision
                    self.values[key] = StoredValue(value=value, revision=revision)
                    changed.add(key)
            elif key in self.values and self.values[key].revision < revision:
                self._own[key] = revision
                del self.values[key]
                changed.add(key)
        self._note(changed, revision)

    async def follow(self) -> NoReturn:
        """Apply the changes of other brokers, forever."""
        while True:
            try:
                await self._follow()
            except CompactedRevision:
                logger.info("changes of the metadata store were missed; reading it again")
                await self.load_when_there()
            except StoreUnavailable as error:
                self._absence.log(
                    logging.WARNING,
                    "the metadata store cannot be followed now: %s",
                    error,
                    now_s=asyncio.get_running_loop().time(),
                )
                await asyncio.sleep(RETRY_DELAY_S)

    async def _follow(self) -> None:
        async for change in self._store.watch(ALL, after_revision=self.revision):
            if self._absence.clear():
                logger.info("the metadata store is followed again")
            self._take_over(change)

    async def load_when_there(self) -> None:
        while True:
            try:
                return await self.load()
            except StoreUnavailable as error:
                self._absence.log(
                    logging.WARNING,
                    "the metadata store cannot be read now: %s",
                    error,
                    now_s=asyncio.get_running_loop().time(),
                )
                await asyncio.sleep(RETRY_DELAY_S)

    def _note(self, changed: Collection[str], revision: int) -> None:
        if self._loads_under_way:
            self._news.update(dict.fromkeys(changed, revision))
        if changed:
            self._on_changed(frozenset(changed))

    def _take_over(self, change: KeyChanged) -> None:
        if change.revision <= self._loaded:
            return
        # The changes of one write arrive one by one. If the watch breaks in between, it resumes before all of them.
        self.revision = change.revision - 1
        if not self._is_news(change.key, change.revision):
            return
        self._own.pop(change.key, None)
        if change.value is None:
            if self.values.pop(change.key, None) is None:
                return
        else:
            self.values[change.key] = StoredValue(value=change.value, revision=change.revision)
        self._note((change.key,), change.revision)

    def _is_news(self, key: str, revision: int) -> bool:
        held = self.values.get(key)
        if held is not None and held.revision >= revision:
            # The watch has now delivered our own write.
            if self._own.get(key) == revision:
                del self._own[key]
            return False
        own = self._own.get(key)
        if own is not None and own >= revision:
            if own == revision:
                del self._own[key]
            return False
        return True
