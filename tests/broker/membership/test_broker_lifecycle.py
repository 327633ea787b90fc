"""A broker's place in the cluster: taken, kept, lost, taken again, given back."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from respool.broker.membership.broker_lifecycle import BrokerLifecycle, NotAdmitted
from respool.broker.metadata.catalog import Catalog
from respool.cluster import keys
from respool.cluster.session import Session, SessionSettings
from respool.drivers.sqlite_store import SqliteStore
from respool.model.cluster import BrokerEndpoint, PartitionImage, RegistryEntry
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.model.settings import Settings
from respool.ports.metadata_store import LeaseExpired, StoredValue, StoreUnavailable
from respool.sim.runtime.simulated_sources import SimRandomSource
from support.inline_offload import InlineOffload
from support.sim_clock import SimClock

ME, OTHER = BrokerId(1), BrokerId(2)
# Renewed every 5 ms of the test's own time.
SETTINGS = SessionSettings(lease_ttl_ms=20, pause_ms=1, wait_ms=1)


class Run:
    """One run of a broker's process."""

    def __init__(
        self,
        world: "World",
        *,
        clean_run: UUID | None = None,
        last_run: UUID | None = None,
        settings: SessionSettings = SETTINGS,
    ) -> None:
        me = BrokerEndpoint(id=ME, host="host", port=9092, rack="a")
        self.stops = self.agains = 0
        rng = SimRandomSource(next(world.seeds))
        self.catalog = Catalog(
            store=world.store, settings=Settings.from_flat(broker_id=ME), rng=rng
        )
        self._loading = self.catalog.load(cluster_id="c", me=me)
        self.lifecycle = BrokerLifecycle(
            me=ME,
            session=Session(me, settings=settings, clean_run=clean_run, last_run=last_run),
            store=world.store,
            catalog=self.catalog,
            clock=world.clock,
            rng=rng,
            on_stop_acting=self._on_stop,
            note_run=self._note,
            on_acting_again=self._on_acting_again,
        )

    async def _note(self, run: UUID) -> None:
        self.noted = run

    def _on_acting_again(self) -> None:
        self.agains += 1

    def _on_stop(self) -> None:
        self.stops += 1

    async def join(self) -> int:
        await self._loading
        await self.lifecycle.join()
        assert self.lifecycle.epoch is not None
        return self.lifecycle.epoch


class World:
    def __init__(self, path: Path) -> None:
        self.clock = SimClock()
        # Without threads, so that turns of the event loop are all the time that a write takes.
        self.store = SqliteStore(str(path / "store"), clock=self.clock, offload=InlineOffload())
        self.seeds = iter(range(1, 1_000))

    async def registry(self) -> RegistryEntry:
        stored = await self.store.get(keys.registry_key(ME))
        assert stored is not None
        return keys.decode_registry(stored.value, revision=stored.revision)

    async def is_registered(self) -> bool:
        return await self.store.get(keys.broker_key(ME)) is not None


def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Any) -> None:
    monkeypatch.setattr("respool.broker.membership.broker_lifecycle.RETRY_DELAY_S", 0)

    async def run() -> None:
        world = World(tmp_path)
        await asyncio.wait_for(story(world), 20)
        await world.store.close()

    asyncio.run(run())


def count_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The reads of the broker's registration from now on."""
    found: list[str] = []
    get = world.store.get

    async def counted(key: str) -> StoredValue | None:
        if key == keys.broker_key(ME):
            found.append(key)
        return await get(key)

    monkeypatch.setattr(world.store, "get", counted)
    return found


async def until(holds: Any) -> None:
    while not holds():
        await asyncio.sleep(0)


async def meanwhile(work: Coroutine[Any, Any, Any], story: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    try:
        await story
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_who_joins_is_registered_and_may_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        run = Run(world)
        assert not run.lifecycle.may_act()
        epoch = await run.join()

        stored = await world.store.get(keys.broker_key(ME))
        assert stored is not None
        assert stored.revision == epoch
        assert run.lifecycle.may_act()
        assert not run.lifecycle.may_control()

    play(tmp_path, monkeypatch, story)


def test_who_cannot_renew_acts_no_more_before_others_can_take_over_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        run = Run(world)
        await run.join()

        async def unavailable(_: int) -> bool:
            raise StoreUnavailable("as the test wants it")

        monkeypatch.setattr(world.store, "keep_alive", unavailable)

        async def wait() -> None:
            # The lease is there as long as this.
            for _ in range(SETTINGS.lease_ttl_ms - 1):
                world.clock.advance(1)
            assert await world.is_registered()
            assert not run.lifecycle.may_act()
            await until(lambda: run.stops > 3)

        await meanwhile(run.lifecycle.stay(), wait())

    play(tmp_path, monkeypatch, story)
    # However often it is tried.
    told = [one.levelname for one in caplog.records if "acts no more" in one.message]
    assert told == ["WARNING"]


def test_who_was_taken_for_dead_hears_of_it_at_once_and_registers_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        # Nobody lives to see when such a lease is to be renewed.
        run = Run(world, settings=SessionSettings(lease_ttl_ms=1_000_000_000, wait_ms=1))
        epoch = await run.join()
        stored = await world.store.get(keys.broker_key(ME))
        assert stored is not None
        lease = keys.decode_broker(ME, stored.value, revision=stored.revision).lease
        assert lease is not None

        async def push_out() -> None:
            # It may be asked for no reason, too.
            run.lifecycle.doubt_lease()
            for _ in range(100):
                await asyncio.sleep(0)
            assert run.lifecycle.epoch == epoch
            await world.store.revoke_lease(lease)
            run.lifecycle.doubt_lease()
            await until(lambda: run.lifecycle.epoch not in (None, epoch))

        await meanwhile(run.lifecycle.stay(), push_out())
        assert run.stops == 1
        assert await world.is_registered()

    play(tmp_path, monkeypatch, story)


def test_who_lost_its_lease_stops_and_registers_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        run = Run(world)
        first = await run.join()

        async def lose() -> None:
            world.clock.advance(SETTINGS.lease_ttl_ms * 2)
            await until(lambda: run.lifecycle.epoch not in (None, first))

        await meanwhile(run.lifecycle.stay(), lose())
        assert run.stops == 1
        assert run.lifecycle.epoch is not None
        assert run.lifecycle.epoch > first
        assert run.lifecycle.may_act()

    play(tmp_path, monkeypatch, story)


def test_a_seat_that_was_taken_on_a_lease_that_has_run_out_is_not_this_one_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's answer is late: meanwhile the broker has lost its lease, and the seat with it."""

    async def story(world: World) -> None:
        run = Run(world)
        first = await run.join()
        answered, may_go_on = asyncio.Event(), asyncio.Event()
        put = run.catalog.put

        async def slowly(*args: Any, **more: Any) -> int:
            revision = await put(*args, **more)
            answered.set()
            await may_go_on.wait()
            return revision

        monkeypatch.setattr(run.catalog, "put", slowly)
        taking = asyncio.ensure_future(run.lifecycle.win_election())
        await answered.wait()
        monkeypatch.undo()
        monkeypatch.setattr("respool.broker.membership.broker_lifecycle.RETRY_DELAY_S", 0)

        async def lose() -> None:
            world.clock.advance(SETTINGS.lease_ttl_ms * 2)
            await until(lambda: run.lifecycle.epoch not in (None, first))

        await meanwhile(run.lifecycle.stay(), lose())
        may_go_on.set()
        with pytest.raises(LeaseExpired):
            await taking
        assert not run.lifecycle.may_control()

    play(tmp_path, monkeypatch, story)


def test_who_has_lost_its_lease_while_it_stops_does_not_ask_for_it_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        run = Run(world)
        await run.join()
        await run.lifecycle.announce_stop()
        monkeypatch.setattr("respool.broker.membership.broker_lifecycle.RETRY_DELAY_S", 60)

        async def lose() -> None:
            world.clock.advance(SETTINGS.lease_ttl_ms * 2)
            await until(lambda: run.stops)
            # Without the pause it would ask in each of these turns.
            for _ in range(100):
                await asyncio.sleep(0)

        await meanwhile(run.lifecycle.stay(), lose())
        assert run.stops == 1

    play(tmp_path, monkeypatch, story)


def test_two_runs_of_one_broker_are_never_registered_at_once_and_the_second_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        dead = Run(world)
        first = await dead.join()
        looks = count_reads(world, monkeypatch)
        joining = asyncio.ensure_future(Run(world).join())
        await until(lambda: len(looks) > 5)
        assert not joining.done()
        assert caplog.text.count("broker 1 is registered already, at host:9092") == 1

        world.clock.advance(SETTINGS.lease_ttl_ms * 2)

        assert await joining > first
        assert not dead.lifecycle.may_act()

    play(tmp_path, monkeypatch, story)


@pytest.mark.parametrize("is_clean", [True, False])
def test_after_a_clean_stop_it_keeps_its_place_in_the_isr_and_after_a_crash_it_leads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool
) -> None:
    async def story(world: World) -> None:
        run = Run(world)
        epoch = await run.join()
        topic = TopicId(SimRandomSource(99).uuid())
        image = PartitionImage(
            replicas=(ME, OTHER), isr=(ME, OTHER), leader=ME, leader_epoch=LeaderEpoch(4)
        )
        # What is not synced may be lost with a crash.
        record = keys.TopicRecord(id=topic, overrides={"respool.flush": "os"}, partition_count=1)
        await world.store.transact(
            puts={
                keys.topic_key("rides"): keys.encode_topic(record),
                keys.partition_key(topic, 0): keys.encode_partition(image),
            }
        )
        if is_clean:
            await run.lifecycle.announce_stop()
            await run.lifecycle.leave()
            assert not await world.is_registered()
            assert (await world.registry()).clean_epoch == epoch
        else:
            world.clock.advance(SETTINGS.lease_ttl_ms * 2)

        await Run(world, clean_run=run.lifecycle.run if is_clean else None).join()

        stored = await world.store.get(keys.partition_key(topic, 0))
        assert stored is not None
        after = keys.decode_partition(stored.value)
        assert after.leader != ME
        assert after.leader_epoch > 4
        assert (ME in after.isr) == is_clean
        assert (await world.registry()).clean_epoch is None

    play(tmp_path, monkeypatch, story)


def test_who_was_removed_may_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        entry = RegistryEntry(is_removed=True)
        await world.store.transact(puts={keys.registry_key(ME): keys.encode_registry(entry)})
        with pytest.raises(NotAdmitted):
            await Run(world).join()
        assert not await world.is_registered()

    play(tmp_path, monkeypatch, story)


def test_the_killed_run_of_the_same_folder_is_not_waited_for_also_if_the_store_does_not_answer_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        killed = Run(world)
        await killed.join()
        revoke, failures = world.store.revoke_lease, iter((StoreUnavailable("away"),))

        async def revoke_at_last(lease: int) -> None:
            for failure in failures:
                raise failure
            await revoke(lease)

        monkeypatch.setattr(world.store, "revoke_lease", revoke_at_last)
        again = Run(world, last_run=killed.noted)

        # Its lease is valid still: the clock stands.
        await again.join()

        assert again.noted != killed.noted
        assert again.lifecycle.may_act()
        # Nor taken for another broker.
        assert "is registered already" not in caplog.text

    play(tmp_path, monkeypatch, story)


def test_whose_lease_was_only_in_doubt_is_told_when_it_may_act_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        run = Run(world)
        await run.join()
        await run.lifecycle._renew()
        assert run.agains == 0
        world.clock.advance(SETTINGS.lease_ttl_ms - 1)
        assert not run.lifecycle.may_act()
        await run.lifecycle._renew()
        assert run.lifecycle.may_act()
        assert run.agains == 1

    play(tmp_path, monkeypatch, story)


def test_a_machine_that_slept_does_not_believe_its_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        run = Run(world)
        await run.join()
        await run.lifecycle._renew()
        assert run.lifecycle.may_act()
        world.clock.sleep(SETTINGS.lease_ttl_ms)
        assert not run.lifecycle.may_act()

    play(tmp_path, monkeypatch, story)
