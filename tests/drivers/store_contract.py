"""What every metadata store promises, on SQLite or on etcd: a driver's test class inherits these tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from respool.ports.metadata_store import (
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    CompactedRevision,
    EntryTooLarge,
    Guard,
    GuardFailed,
    KeyChanged,
    LeaseExpired,
    MetadataStore,
    Snapshot,
    StoredValue,
    StoreUnavailable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An open store that nobody else uses, and a way to let leases grow old."""

    store: MetadataStore
    let_pass: Callable[[int], Awaitable[None]]


Story = Callable[["StoreContract", Stage], Awaitable[None]]
Test = Callable[["StoreContract", Path], None]


def told(story: Story) -> Test:
    """Make a test of an async story: open a store for it, and close it afterwards."""

    def test(self: "StoreContract", tmp_path: Path) -> None:
        async def tell() -> None:
            async with self.opened(tmp_path) as stage, asyncio.timeout(60):
                await story(self, stage)

        asyncio.run(tell())

    test.__name__ = story.__name__
    return test


async def take(changes: AsyncIterator[KeyChanged], count: int) -> list[KeyChanged]:
    return [await anext(changes) for _ in range(count)]


class StoreContract:
    def opened(self, tmp_path: Path) -> AbstractAsyncContextManager[Stage]:
        raise NotImplementedError

    # -- reading and writing -----------------------------------------------------------------------------------------

    @told
    async def test_what_was_put_is_read_with_its_revision(self, stage: Stage) -> None:
        store = stage.store
        assert await store.get("/a") is None
        first = await store.transact(puts={"/a": b"1", "/b": b"2"})
        second = await store.transact(puts={"/a": b"3"})
        assert second == first + 1
        assert await store.get("/a") == StoredValue(value=b"3", revision=second)
        assert await store.get("/b") == StoredValue(value=b"2", revision=first)

    @told
    async def test_putting_the_same_value_again_is_a_change(self, stage: Stage) -> None:
        first = await stage.store.transact(puts={"/a": b"1"})
        second = await stage.store.transact(puts={"/a": b"1"})
        assert await stage.store.get("/a") == StoredValue(value=b"1", revision=second)
        assert second == first + 1

    @told
    async def test_a_transaction_that_changes_nothing_has_no_revision_of_its_own(
        self, stage: Stage
    ) -> None:
        store = stage.store
        revision = await store.transact(puts={"/a": b"1"})
        assert await store.transact(deletes=["/ghost"]) == revision
        assert await store.transact(guards=[Guard(key="/a", revision=revision)]) == revision
        assert await store.transact() == revision
        assert await store.transact(deletes=["/a", "/a"]) == revision + 1
        assert await store.get("/a") is None

    @told
    async def test_a_snapshot_is_all_under_the_prefix_at_one_revision(self, stage: Stage) -> None:
        store = stage.store
        await store.transact(puts={"/topics/b": b"1", "/topics/a": b"2", "/topicsx": b"3"})
        revision = await store.transact(puts={"/other": b"4"}, deletes=["/topics/b"])
        snapshot = await store.snapshot("/topics/")
        assert snapshot == Snapshot(
            revision=revision,
            values={"/topics/a": StoredValue(value=b"2", revision=revision - 1)},
        )
        everything = await store.snapshot("")
        assert list(everything.values) == ["/other", "/topics/a", "/topicsx"]
        assert (await store.snapshot("/nothing")).values == {}

    @told
    async def test_a_snapshot_does_not_change_afterwards(self, stage: Stage) -> None:
        await stage.store.transact(puts={"/a": b"1"})
        snapshot = await stage.store.snapshot("")
        await stage.store.transact(puts={"/b": b"1"}, deletes=["/a"])
        assert list(snapshot.values) == ["/a"]

    @told
    async def test_keys_and_values_may_be_anything_within_their_limits(self, stage: Stage) -> None:
        store = stage.store
        puts = {
            "k" * KEY_BYTES_MAX: b"",
            "ключ/%_'\"\\": bytes(range(256)),
            "big": b"\xff" * VALUE_BYTES_MAX,
        }
        await store.transact(puts=puts)
        snapshot = await store.snapshot("")
        assert {key: stored.value for key, stored in snapshot.values.items()} == puts
        assert list((await store.snapshot("ключ/%")).values) == ["ключ/%_'\"\\"]
        assert (await store.snapshot("%")).values == {}

    @told
    async def test_what_is_too_large_is_refused_and_nothing_written(self, stage: Stage) -> None:
        store = stage.store
        for key, value in (
            ("", b""),
            ("k" * (KEY_BYTES_MAX + 1), b""),
            ("ё" * (KEY_BYTES_MAX // 2 + 1), b""),
            ("big", bytes(VALUE_BYTES_MAX + 1)),
        ):
            with pytest.raises(EntryTooLarge):
                await store.transact(puts={"/a": b"1", key: value})
        assert (await store.snapshot("")).values == {}

    # -- guards ------------------------------------------------------------------------------------------------------

    @told
    async def test_a_guard_lets_only_the_revision_pass_that_was_read(self, stage: Stage) -> None:
        store = stage.store
        first = await store.transact(guards=[Guard(key="/a", revision=0)], puts={"/a": b"1"})
        second = await store.transact(guards=[Guard(key="/a", revision=first)], puts={"/a": b"2"})
        for stale in (0, first, second + 1):
            with pytest.raises(GuardFailed, match="/a"):
                await store.transact(
                    guards=[Guard(key="/a", revision=stale)],
                    puts={"/a": b"3", "/b": b"3"},
                    deletes=["/c"],
                )
        assert await store.get("/a") == StoredValue(value=b"2", revision=second)
        assert await store.get("/b") is None
        assert (await store.snapshot("")).revision == second

    @told
    async def test_all_guards_must_hold(self, stage: Stage) -> None:
        store = stage.store
        revision = await store.transact(puts={"/a": b"1"})
        holds, fails = Guard(key="/a", revision=revision), Guard(key="/b", revision=1)
        for guards in ([holds, fails], [fails, holds]):
            with pytest.raises(GuardFailed):
                await store.transact(guards=guards, deletes=["/a"])
        assert await store.get("/a") is not None

    @told
    async def test_a_deleted_key_is_guarded_like_one_that_never_was(self, stage: Stage) -> None:
        store = stage.store
        revision = await store.transact(puts={"/a": b"1"})
        await store.transact(deletes=["/a"])
        with pytest.raises(GuardFailed):
            await store.transact(guards=[Guard(key="/a", revision=revision)], puts={"/a": b"2"})
        await store.transact(guards=[Guard(key="/a", revision=0)], puts={"/a": b"3"})

    @told
    async def test_of_many_at_once_one_wins(self, stage: Stage) -> None:
        async def claim(number: int) -> bool:
            try:
                await stage.store.transact(
                    guards=[Guard(key="/controller", revision=0)],
                    puts={"/controller": b"%d" % number},
                )
            except GuardFailed:
                return False
            return True

        won = await asyncio.gather(*(claim(number) for number in range(10)))
        assert sum(won) == 1
        stored = await stage.store.get("/controller")
        assert stored is not None
        assert stored.value == b"%d" % won.index(True)

    @told
    async def test_counting_with_guards_loses_no_count(self, stage: Stage) -> None:
        async def count() -> None:
            for _ in range(5):
                while True:
                    stored = await stage.store.get("/n")
                    value, revision = (int(stored.value), stored.revision) if stored else (0, 0)
                    try:
                        await stage.store.transact(
                            guards=[Guard(key="/n", revision=revision)],
                            puts={"/n": b"%d" % (value + 1)},
                        )
                    except GuardFailed:
                        continue
                    break

        await asyncio.gather(*(count() for _ in range(4)))
        stored = await stage.store.get("/n")
        assert stored is not None
        assert stored.value == b"20"

    # -- watching ----------------------------------------------------------------------------------------------------

    @told
    async def test_a_watch_sees_each_change_under_its_prefix_in_order(self, stage: Stage) -> None:
        store = stage.store
        start = (await store.snapshot("")).revision
        changes = store.watch("/a/", after_revision=start)
        waiting = asyncio.create_task(take(changes, 4))
        await store.transact(puts={"/a/1": b"x", "/b/1": b"y"})
        await store.transact(puts={"/b/2": b"y"})
        await store.transact(puts={"/a/2": b"z"}, deletes=["/a/1"])
        await store.transact(puts={"/a/1": b"again"})
        seen = await waiting
        assert sorted(seen[1:3], key=lambda change: change.key) == [
            KeyChanged(key="/a/1", value=None, revision=start + 3),
            KeyChanged(key="/a/2", value=b"z", revision=start + 3),
        ]
        assert [seen[0], seen[3]] == [
            KeyChanged(key="/a/1", value=b"x", revision=start + 1),
            KeyChanged(key="/a/1", value=b"again", revision=start + 4),
        ]

    @told
    async def test_a_watch_resumes_where_another_ended(self, stage: Stage) -> None:
        store = stage.store
        start = (await store.snapshot("")).revision
        for number in range(5):
            await store.transact(puts={"/a": b"%d" % number})
        first = await take(store.watch("/a", after_revision=start), 2)
        rest = await take(store.watch("/a", after_revision=first[-1].revision), 3)
        assert [change.value for change in first + rest] == [b"0", b"1", b"2", b"3", b"4"]

    @told
    async def test_two_watches_do_not_take_from_each_other(self, stage: Stage) -> None:
        store = stage.store
        start = (await store.snapshot("")).revision
        one = asyncio.create_task(take(store.watch("", after_revision=start), 3))
        two = asyncio.create_task(take(store.watch("", after_revision=start), 3))
        for number in range(3):
            await store.transact(puts={"/a": b"%d" % number})
        assert await one == await two

    @told
    async def test_a_watch_from_the_future_waits_for_it(self, stage: Stage) -> None:
        store = stage.store
        start = (await store.snapshot("")).revision
        waiting = asyncio.create_task(take(store.watch("", after_revision=start + 1), 1))
        await store.transact(puts={"/a": b"skipped"})
        await store.transact(puts={"/a": b"seen"})
        assert [change.value for change in await waiting] == [b"seen"]

    @told
    async def test_a_failed_guard_is_not_seen(self, stage: Stage) -> None:
        store = stage.store
        start = (await store.snapshot("")).revision
        waiting = asyncio.create_task(take(store.watch("", after_revision=start), 1))
        with pytest.raises(GuardFailed):
            await store.transact(guards=[Guard(key="/x", revision=9)], puts={"/a": b"no"})
        await store.transact(puts={"/a": b"yes"})
        assert [change.value for change in await waiting] == [b"yes"]

    async def forget_before(self, store: MetadataStore, revision: int) -> None:
        """Make the store forget changes up to this revision, at the least."""
        raise NotImplementedError

    @told
    async def test_a_watch_of_forgotten_changes_says_so(self, stage: Stage) -> None:
        store = stage.store
        start = await store.transact(puts={"/a": b"1"})
        await store.transact(puts={"/a": b"2"})
        await self.forget_before(store, start + 1)
        with pytest.raises(CompactedRevision):
            await anext(store.watch("", after_revision=start))
        now = (await store.snapshot("")).revision
        waiting = asyncio.create_task(take(store.watch("", after_revision=now), 1))
        await store.transact(puts={"/a": b"3"})
        assert [change.value for change in await waiting] == [b"3"]

    # -- leases ------------------------------------------------------------------------------------------------------

    @told
    async def test_keys_vanish_together_when_their_lease_expires(self, stage: Stage) -> None:
        store = stage.store
        lease = await store.grant_lease(2_000)
        await store.transact(puts={"/brokers/1": b"me", "/controller": b"1"}, lease=lease)
        revision = await store.transact(puts={"/topics/t": b"stays"})
        await stage.let_pass(1_000)
        assert await store.get("/brokers/1") is not None
        await stage.let_pass(2_000)
        snapshot = await store.snapshot("")
        assert list(snapshot.values) == ["/topics/t"]
        gone = await take(store.watch("", after_revision=revision), 2)
        assert {change.key: change.value for change in gone} == {
            "/brokers/1": None,
            "/controller": None,
        }
        assert {change.revision for change in gone} == {snapshot.revision}

    @told
    async def test_a_lease_that_is_renewed_lives_on(self, stage: Stage) -> None:
        store = stage.store
        lease = await store.grant_lease(2_000)
        await store.transact(puts={"/a": b"1"}, lease=lease)
        for _ in range(3):
            await stage.let_pass(1_000)
            assert await store.keep_alive(lease)
        assert await store.get("/a") is not None

    @told
    async def test_a_lease_that_expired_is_not_renewed_and_holds_nothing_new(
        self, stage: Stage
    ) -> None:
        store = stage.store
        lease = await store.grant_lease(2_000)
        await stage.let_pass(3_000)
        assert not await store.keep_alive(lease)
        revision = (await store.snapshot("")).revision
        with pytest.raises(LeaseExpired):
            await store.transact(puts={"/a": b"1"}, lease=lease)
        assert await store.snapshot("") == Snapshot(revision=revision, values={})
        assert not await store.keep_alive(lease + 1_000)

    @told
    async def test_a_revoked_lease_takes_its_keys_with_it(self, stage: Stage) -> None:
        store = stage.store
        lease, other = await store.grant_lease(60_000), await store.grant_lease(60_000)
        assert lease != other
        await store.transact(puts={"/a": b"1"}, lease=lease)
        await store.transact(puts={"/b": b"1"}, lease=other)
        await store.revoke_lease(lease)
        await store.revoke_lease(lease)
        assert list((await store.snapshot("")).values) == ["/b"]
        assert not await store.keep_alive(lease)
        assert await store.keep_alive(other)

    @told
    async def test_a_key_hangs_on_the_lease_of_its_last_write(self, stage: Stage) -> None:
        store = stage.store
        one, two = await store.grant_lease(60_000), await store.grant_lease(60_000)
        await store.transact(puts={"/stays": b"1", "/moves": b"1"}, lease=one)
        await store.transact(puts={"/stays": b"2"})
        await store.transact(puts={"/moves": b"2"}, lease=two)
        await store.revoke_lease(one)
        assert list((await store.snapshot("")).values) == ["/moves", "/stays"]
        await store.revoke_lease(two)
        assert list((await store.snapshot("")).values) == ["/stays"]

    # -- the end -----------------------------------------------------------------------------------------------------

    @told
    async def test_a_closed_store_answers_nobody(self, stage: Stage) -> None:
        store = stage.store
        revision = await store.transact(puts={"/a": b"1"})
        waiting = asyncio.create_task(take(store.watch("", after_revision=revision), 1))
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await waiting
        for use in (
            lambda: store.get("/a"),
            lambda: store.snapshot(""),
            lambda: store.transact(puts={"/a": b"2"}),
            lambda: store.grant_lease(1_000),
            lambda: store.keep_alive(1),
            lambda: store.revoke_lease(1),
        ):
            with pytest.raises(StoreUnavailable):
                await use()
