"""What a broker sees of the metadata store: its own writes at once, those of others as they come, nothing twice."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.broker.metadata.catalog_feed import CatalogFeed
from respool.drivers.sqlite_store import SqliteStore
from respool.ports.metadata_store import (
    CompactedRevision,
    Guard,
    GuardFailed,
    KeyChanged,
    Snapshot,
    StoredValue,
    StoreUnavailable,
)
from support.sim_clock import SimClock


class Told:
    """A feed, and what it told."""

    def __init__(self, store: Any) -> None:
        self.changes: list[frozenset[str]] = []
        self.feed = CatalogFeed(store, on_changed=self.changes.append)

    @property
    def values(self) -> dict[str, bytes]:
        return {key: one.value for key, one in self.feed.values.items()}


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def with_following(told: Told, story: Coroutine[Any, Any, None]) -> None:
    following = asyncio.ensure_future(told.feed.follow())
    try:
        await story
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def test_own_writes_are_seen_at_once_and_told_once(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore(str(tmp_path / "store"), clock=SimClock())
        told = Told(store)
        await told.feed.load()

        async def write() -> None:
            revision = await told.feed.write(puts={"/a": b"1", "/b": b"2"})
            assert told.feed.values["/a"] == StoredValue(value=b"1", revision=revision)
            await told.feed.write(deletes=["/a", "/nothing"])
            assert told.values == {"/b": b"2"}
            await settle()

        await with_following(told, write())
        # Whether the write's own answer or the store's word of it came first.
        assert sorted(key for keys in told.changes for key in keys) == ["/a", "/a", "/b"]
        assert told.values == {"/b": b"2"}
        await store.close()

    asyncio.run(story())


def test_what_others_write_is_seen_as_it_comes(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore(str(tmp_path / "store"), clock=SimClock())
        mine, other = Told(store), Told(store)
        await mine.feed.load()

        async def write() -> None:
            await other.feed.write(puts={"/a": b"1"})
            await settle()
            assert mine.values == {"/a": b"1"}
            await other.feed.write(puts={"/a": b"2"})
            await other.feed.write(deletes=["/a"])
            await settle()

        await with_following(mine, write())
        assert mine.values == {}
        assert mine.changes == [frozenset({"/a"})] * 3
        await store.close()

    asyncio.run(story())


def test_a_write_that_is_refused_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        store = SqliteStore(str(tmp_path / "store"), clock=SimClock())
        told = Told(store)
        await told.feed.write(puts={"/a": b"1"})
        with pytest.raises(GuardFailed):
            await told.feed.write(guards=[Guard(key="/a", revision=0)], puts={"/a": b"2"})
        assert told.values == {"/a": b"1"}
        await store.close()

    asyncio.run(story())


class ScriptedStore:
    """A store whose watch tells what the test says; it may break, and forget."""

    def __init__(self) -> None:
        self.values: dict[str, StoredValue] = {}
        self.revision = 0
        self.script: list[KeyChanged | Exception] = []
        self.watched_from: list[int] = []

    async def snapshot(self, prefix: str) -> Snapshot:
        assert prefix == "/"
        return Snapshot(revision=self.revision, values=dict(self.values))

    async def watch(self, prefix: str, *, after_revision: int) -> AsyncIterator[KeyChanged]:
        self.watched_from.append(after_revision)
        while self.script:
            one = self.script.pop(0)
            if isinstance(one, Exception):
                raise one
            yield one
        await asyncio.Event().wait()


def put(key: str, value: bytes | None, revision: int) -> KeyChanged:
    return KeyChanged(key=key, value=value, revision=revision)


def test_a_watch_that_breaks_in_the_middle_of_a_write_misses_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("respool.broker.metadata.catalog_feed.RETRY_DELAY_S", 0)
    store = ScriptedStore()
    store.script = [
        put("/a", b"1", 7),
        StoreUnavailable("gone"),
        put("/a", b"1", 7),
        put("/b", b"1", 7),
    ]
    told = Told(store)
    asyncio.run(with_following(told, settle()))
    assert store.watched_from == [0, 6]
    assert told.values == {"/a": b"1", "/b": b"1"}
    assert told.changes == [frozenset({"/a"}), frozenset({"/b"})]


def test_a_store_that_is_away_is_told_of_once_and_again_the_next_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("respool.broker.metadata.catalog_feed.RETRY_DELAY_S", 0)
    store = ScriptedStore()
    away = [StoreUnavailable("gone")] * 5
    store.script = [*away, put("/a", b"1", 7), *away]
    with caplog.at_level(logging.INFO):
        asyncio.run(with_following(Told(store), settle()))
    assert [(one.levelname, one.message) for one in caplog.records] == [
        ("WARNING", "the metadata store cannot be followed now: gone"),
        ("INFO", "the metadata store is followed again"),
        ("WARNING", "the metadata store cannot be followed now: gone"),
    ]


def test_after_changes_were_missed_everything_is_read_anew() -> None:
    store = ScriptedStore()
    told = Told(store)
    told.feed.values = {
        "/gone": StoredValue(value=b"x", revision=1),
        "/same": StoredValue(value=b"s", revision=2),
    }
    store.values = {
        "/same": StoredValue(value=b"s", revision=2),
        "/new": StoredValue(value=b"n", revision=9),
    }
    store.revision = 9
    store.script = [CompactedRevision("too old")]
    asyncio.run(with_following(told, settle()))
    assert store.watched_from == [0, 9]
    assert told.changes == [frozenset({"/gone", "/new"})]
    assert told.values == {"/same": b"s", "/new": b"n"}


class SlowSnapshots(ScriptedStore):
    """A store whose snapshots take their time: they are as old as their beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.may_arrive = asyncio.Event()

    async def snapshot(self, prefix: str) -> Snapshot:
        snapshot = await super().snapshot(prefix)
        await self.may_arrive.wait()
        return snapshot

    async def transact(self, *, puts: dict[str, bytes], **_: Any) -> int:
        self.revision += 1
        for key, value in puts.items():
            self.values[key] = StoredValue(value=value, revision=self.revision)
        return self.revision


def test_what_is_written_or_told_while_everything_is_read_anew_is_not_lost() -> None:
    async def story() -> None:
        store = SlowSnapshots()
        told = Told(store)
        await told.feed.write(puts={"/mine": b"1", "/theirs": b"1", "/gone": b"1"})
        loading = asyncio.ensure_future(told.feed.load())
        await settle()
        await told.feed.write(puts={"/mine": b"2"})
        store.script = [put("/theirs", b"2", 3), put("/gone", None, 4)]

        async def arrive() -> None:
            await settle()
            store.may_arrive.set()
            await loading

        await with_following(told, arrive())
        assert told.values == {"/mine": b"2", "/theirs": b"2"}

    asyncio.run(story())


def test_what_a_snapshot_shows_is_not_undone_by_older_news() -> None:
    async def story() -> None:
        store = ScriptedStore()
        told = Told(store)
        store.revision = 9
        await told.feed.load()
        # Written at 5, deleted at 8: the snapshot knows it no more.
        store.script = [put("/a", b"1", 5)]
        await with_following(told, settle())
        assert told.values == {}
        assert told.changes == []

    asyncio.run(story())


def test_a_late_answer_to_our_own_write_does_not_bring_back_what_was_deleted_since() -> None:
    async def story() -> None:
        store = SlowSnapshots()
        store.may_arrive.set()
        told = Told(store)
        await told.feed.load()
        may_answer = asyncio.Event()

        async def transact(**_: Any) -> int:
            await may_answer.wait()
            return 20

        store.transact = transact  # type: ignore[method-assign]
        writing = asyncio.ensure_future(told.feed.write(puts={"/controller": b"1"}))
        store.script = [put("/controller", b"1", 20), put("/controller", None, 21)]

        async def answer() -> None:
            await settle()
            assert told.values == {}
            may_answer.set()
            assert await writing == 20

        await with_following(told, answer())
        assert told.values == {}

    asyncio.run(story())


def test_a_snapshot_that_comes_after_a_later_one_is_passed_over() -> None:
    async def story() -> None:
        store = SlowSnapshots()
        told = Told(store)
        early = asyncio.ensure_future(told.feed.load())
        await settle()
        hold_up, store.may_arrive = store.may_arrive, asyncio.Event()
        store.may_arrive.set()
        # As another broker writes it.
        await store.transact(puts={"/a": b"1"})
        await told.feed.load()
        hold_up.set()
        await early
        assert told.values == {"/a": b"1"}

    asyncio.run(story())


def test_after_a_write_without_an_answer_it_is_doubtful_until_everything_is_read() -> None:
    class Silent(ScriptedStore):
        async def transact(self, **_: Any) -> int:
            raise StoreUnavailable("as the test wants it")

    async def story() -> None:
        told = Told(Silent())
        with pytest.raises(StoreUnavailable):
            await told.feed.write(puts={"/a": b"1"})
        assert told.feed.is_doubtful
        await told.feed.load()
        assert not told.feed.is_doubtful

    asyncio.run(story())


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32))
def test_late_news_never_undo_our_own_writes_and_all_agree_in_the_end(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two brokers write at random; each follows the store, now and then, at its own speed."""
    rng = Random(seed)

    async def story() -> None:
        folder = tmp_path_factory.mktemp("feed")
        store = SqliteStore(str(folder / "store"), clock=SimClock())
        tolds = [Told(store), Told(store)]
        highest: list[dict[str, int]] = [{}, {}]
        for _ in range(30):
            number = rng.randrange(2)
            feed, key = tolds[number].feed, f"/{rng.choice('abc')}"
            if rng.random() < 0.5:
                await with_following(tolds[number], settle())
            elif rng.random() < 0.7:
                await feed.write(puts={key: bytes([rng.randrange(256)])})
            else:
                await feed.write(deletes=[key])
            for at, one in feed.values.items():
                assert one.revision >= highest[number].get(at, 0), "it went back"
                highest[number][at] = one.revision
        for told in tolds:
            await with_following(told, settle())
        truth = (await store.snapshot("/")).values
        assert tolds[0].feed.values == tolds[1].feed.values == dict(truth)
        await store.close()

    asyncio.run(story())
