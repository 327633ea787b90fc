"""The SQLite store keeps the contract, and what it has committed."""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from drivers.store_contract import Stage, StoreContract, take
from respool.drivers.sqlite_file import SqliteFile
from respool.drivers.sqlite_store import SqliteStore
from respool.model.errors import DataFolderInUse, DataFolderMismatch, DiskFailed
from respool.ports.metadata_store import Guard, MetadataStore, StoreUnavailable
from support.inline_offload import InlineOffload
from support.sim_clock import SimClock


class TestContract(StoreContract):
    @asynccontextmanager
    async def opened(self, tmp_path: Path) -> AsyncIterator[Stage]:
        clock = SimClock()
        store = SqliteStore(str(tmp_path / "metadata.sqlite"), clock=clock, history_changes_max=50)

        async def let_pass(ms: int) -> None:
            clock.advance(ms)

        try:
            yield Stage(store=store, let_pass=let_pass)
        finally:
            await store.close()

    async def forget_before(self, store: MetadataStore, revision: int) -> None:
        for _ in range(50):
            await store.transact(puts={"/filler": b""})


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "metadata.sqlite")


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(tell())


def fresh(path: str, *, offload: InlineOffload | None = None) -> SqliteStore:
    return SqliteStore(path, clock=SimClock(), offload=offload or InlineOffload())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


# -- what stays on the disk --------------------------------------------------------------------------------------------


def test_everything_but_leases_is_there_after_reopening(path: str) -> None:
    async def story() -> None:
        store = fresh(path)
        await store.transact(puts={"/a": b"1", "/b": b"2"})
        lease = await store.grant_lease(60_000)
        await store.transact(puts={"/brokers/1": b"me"}, lease=lease)
        revision = await store.transact(deletes=["/b"])
        await store.close()

        store = fresh(path)
        snapshot = await store.snapshot("")
        # The key on the lease went with the process, which is a change of its own.
        assert snapshot.revision == revision + 1
        assert {key: stored.value for key, stored in snapshot.values.items()} == {"/a": b"1"}
        assert not await store.keep_alive(lease)
        assert await store.grant_lease(60_000) != lease
        assert await store.transact(puts={"/c": b"3"}) == revision + 2
        await store.close()

    run(story)


def test_a_commit_is_in_the_file_before_it_is_reported(path: str, tmp_path: Path) -> None:
    async def story() -> None:
        store = fresh(path)
        for number in range(20):
            revision = await store.transact(puts={"/n": b"%d" % number})
            # What a process killed right now would leave: the file and its log, copied without any farewell.
            copy = tmp_path / f"copy-{number}"
            copy.mkdir()
            for name in ("metadata.sqlite", "metadata.sqlite-wal"):
                shutil.copy(tmp_path / name, copy / name)
            left = SqliteFile(str(copy / "metadata.sqlite"))
            assert left.load().revision == revision
            assert left.load().values["/n"].value == b"%d" % number
            left.close()
        await store.close()

    run(story)


def test_commits_are_synced_to_the_disk(path: str) -> None:
    file = SqliteFile(path)
    ask = file._connection.execute
    assert ask("PRAGMA journal_mode").fetchone() == ("wal",)
    full = 2
    assert ask("PRAGMA synchronous").fetchone() == (full,)
    assert ask("PRAGMA locking_mode").fetchone() == ("exclusive",)
    file.close()


def test_a_clean_close_leaves_one_file(path: str, tmp_path: Path) -> None:
    store = fresh(path)
    run(lambda: store.transact(puts={"/a": b"1"}))  # type: ignore[arg-type, return-value]
    run(store.close)
    assert os.listdir(tmp_path) == ["metadata.sqlite"]
    assert os.stat(path).st_mode & 0o007 == 0


def test_watching_begins_anew_after_reopening(path: str) -> None:
    async def story() -> None:
        store = fresh(path)
        revision = await store.transact(puts={"/a": b"1"})
        await store.close()
        store = fresh(path)
        waiting = asyncio.create_task(take(store.watch("", after_revision=revision), 1))
        await store.transact(puts={"/a": b"2"})
        assert [change.value for change in await waiting] == [b"2"]
        await store.close()

    run(story)


# -- files it does not open --------------------------------------------------------------------------------------------


def test_a_second_opener_is_refused(path: str) -> None:
    store = fresh(path)
    with pytest.raises(DataFolderInUse, match=r"metadata\.sqlite"):
        fresh(path)
    run(store.close)
    run(fresh(path).close)


def test_a_file_that_is_no_database_is_refused_and_kept(path: str) -> None:
    content = b"something else entirely" * 100
    Path(path).write_bytes(content)
    with pytest.raises(DataFolderMismatch, match="not a metadata store"):
        fresh(path)
    assert Path(path).read_bytes() == content


def test_somebody_elses_database_is_refused_and_kept(path: str) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (x)")
    content = Path(path).read_bytes()
    with pytest.raises(DataFolderMismatch, match="not a metadata store"):
        fresh(path)
    assert Path(path).read_bytes() == content


def test_a_layout_of_the_future_is_refused(path: str) -> None:
    run(fresh(path).close)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(DataFolderMismatch, match="layout version 99"):
        fresh(path)


def test_a_damaged_file_is_refused(path: str) -> None:
    async def story() -> None:
        store = fresh(path)
        await store.transact(puts={f"/{number}": b"x" * 500 for number in range(200)})
        await store.close()

    run(story)
    with open(path, "r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096)
    with pytest.raises(DiskFailed, match=r"metadata\.sqlite"):
        fresh(path)


def test_a_folder_that_is_not_there_is_told(path: str) -> None:
    with pytest.raises(DiskFailed, match="No such file"):
        fresh(os.path.join(path, "nowhere"))


# -- trouble -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(path: str) -> Iterator[SqliteStore]:
    store = fresh(path)
    store._file._connection.execute("PRAGMA max_page_count = 20")
    yield store
    run(store.close)


def test_a_full_disk_changes_nothing_and_the_store_goes_on(small: SqliteStore) -> None:
    async def story() -> None:
        revision = await small.transact(puts={"/a": b"1"})
        with pytest.raises(StoreUnavailable, match="full"):
            await small.transact(puts={"/a": b"2", "/b": bytes(500_000)})
        assert (await small.snapshot("")).revision == revision
        stored = await small.get("/a")
        assert stored is not None
        assert stored.value == b"1"
        assert await small.transact(puts={"/a": b"3"}) == revision + 1

    run(story)


def test_after_any_other_failed_write_the_store_ends(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store = fresh(path)
        revision = await store.transact(puts={"/a": b"1"})
        waiting = asyncio.create_task(take(store.watch("", after_revision=revision), 1))

        def fail(**_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(store._file, "write", fail)
        with pytest.raises(StoreUnavailable, match="disk I/O error"):
            await store.transact(puts={"/a": b"2"})
        monkeypatch.undo()
        for use in (lambda: store.get("/a"), lambda: store.transact(puts={"/a": b"3"})):
            with pytest.raises(StoreUnavailable, match="an earlier write failed"):
                await use()
        with pytest.raises(StoreUnavailable):
            await waiting
        await store.close()

    run(story)


def test_a_write_goes_on_when_the_one_who_asked_is_cancelled(path: str) -> None:
    async def story() -> None:
        offload = InlineOffload(hold=True)
        store = fresh(path, offload=offload)
        write = asyncio.create_task(store.transact(puts={"/a": b"1"}))
        await settle()
        write.cancel()
        await settle()
        assert write.cancelled()
        offload.release()
        await settle()
        stored = await store.get("/a")
        assert stored is not None
        assert stored.revision == 1
        await store.close()

    run(story)


def test_nothing_is_seen_before_it_is_committed(path: str) -> None:
    async def story() -> None:
        offload = InlineOffload(hold=True)
        store = fresh(path, offload=offload)
        watch = asyncio.create_task(take(store.watch("", after_revision=0), 1))
        write = asyncio.create_task(store.transact(puts={"/a": b"1"}))
        await settle()
        assert offload.held == 1
        assert await store.get("/a") is None
        assert (await store.snapshot("")).revision == 0
        assert not watch.done()
        offload.release()
        assert await write == 1
        assert len(await watch) == 1
        await store.close()

    run(story)


def test_guards_are_judged_after_the_writes_asked_for_before(path: str) -> None:
    async def story() -> None:
        offload = InlineOffload(hold=True)
        store = fresh(path, offload=offload)
        first = asyncio.create_task(store.transact(puts={"/a": b"1"}))
        second = asyncio.create_task(
            store.transact(guards=[Guard(key="/a", revision=1)], puts={"/a": b"2"})
        )
        closing = asyncio.create_task(store.close())
        await settle()
        offload.release()
        assert (await first, await second) == (1, 2)
        await closing

    run(story)


def test_a_lease_expires_by_itself_for_those_who_watch(path: str) -> None:
    async def story() -> None:
        clock = SimClock()
        store = SqliteStore(path, clock=clock, offload=InlineOffload())
        lease = await store.grant_lease(60)
        revision = await store.transact(puts={"/a": b"1"}, lease=lease)
        clock.advance(60)
        # Nobody calls the store: its own timer finds the lease expired.
        changes = await take(store.watch("", after_revision=revision), 1)
        assert [(change.key, change.value) for change in changes] == [("/a", None)]
        await store.close()

    run(story)


def test_a_lease_lasts_exactly_as_long_as_it_was_granted_for(path: str) -> None:
    async def story() -> None:
        clock = SimClock()
        store = SqliteStore(path, clock=clock, offload=InlineOffload())
        lease = await store.grant_lease(1_000)
        await store.transact(puts={"/a": b"1"}, lease=lease)
        clock.advance(999)
        assert await store.get("/a") is not None
        clock.advance(1)
        assert await store.get("/a") is None
        await store.close()

    run(story)


def test_setting_the_wall_clock_expires_nothing(path: str) -> None:
    async def story() -> None:
        clock = SimClock()
        store = SqliteStore(path, clock=clock, offload=InlineOffload())
        lease = await store.grant_lease(1_000)
        clock.skew(10**9)
        assert await store.keep_alive(lease)
        await store.close()

    run(story)


def test_works_on_a_thread_of_its_own_when_none_is_given(path: str) -> None:
    async def story() -> None:
        store = SqliteStore(path, clock=SimClock())
        assert await store.transact(puts={"/a": b"1"}) == 1
        await store.close()

    run(story)
