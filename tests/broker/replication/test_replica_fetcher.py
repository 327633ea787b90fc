"""What a follower's fetcher asks its leader for, and when. The leader, and all that is done to logs, are the test's."""

import asyncio
from types import SimpleNamespace
from typing import Any

from respool.broker.replication.replica_fetcher import (
    NEWCOMERS_CHANNEL,
    STEADY_CHANNEL,
    WAIT_MS,
    ReplicaFetcher,
)
from respool.model.ids import BrokerId
from respool.replication.effects import WaitFor
from respool.replication.follower import BACKOFF_MS
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock

LEADER = BrokerId(2)
FETCH_AHEAD_BYTES = 100


class Leader:
    """Keeps what it is asked in a round, for ever; and does not know at first that it leads what newcomers want."""

    def __init__(self, *, refusals: int) -> None:
        self.refusals = refusals
        self.channels: list[int] = []

    async def fetch(self, asked: dict[Any, Any], *, channel: int, **_: Any) -> list[Any]:
        self.channels.append(channel)
        if channel == STEADY_CHANNEL:
            await asyncio.Event().wait()
        return [SimpleNamespace(partition=one, records=b"") for one in asked]

    async def take(self, _: Any) -> list[Any]:
        if not self.refusals:
            return []
        self.refusals -= 1
        return [WaitFor(delay_ms=BACKOFF_MS)]


class FollowingPartition:
    def __init__(self) -> None:
        self.follower = SimpleNamespace(
            image=SimpleNamespace(leader=LEADER),
            awaits_disk=False,
            is_behind_commits=False,
            next_fetch=lambda: "from where it is",
        )
        self.role = self
        self.is_online = True

    def on_follower_ready(self) -> None: ...


def fetcher_from(leader: Any, loop: SimLoop) -> ReplicaFetcher:
    """`leader` answers fetches, and takes what was answered in the place of logs."""
    throttle: Any = SimpleNamespace(wait_ms=lambda _: 0, on_copied=lambda *_: None)
    return ReplicaFetcher(
        leader=LEADER,
        requests=leader,
        work=leader,
        throttle=throttle,
        clock=NodeClock(loop),
        fetch_ahead_bytes=FETCH_AHEAD_BYTES,
        broker_epoch=lambda: 1,
        spawn=loop.create_task,
    )


def test_a_newcomer_that_is_put_off_is_fetched_again_while_the_round_waits() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        leader: Any = Leader(refusals=2)
        fetcher = fetcher_from(leader, loop)
        old: Any = FollowingPartition()
        newcomer: Any = FollowingPartition()
        fetcher.add(old)
        running = loop.create_task(fetcher.run())
        await asyncio.sleep(0.001)
        assert leader.channels == [STEADY_CHANNEL]
        fetcher.add(newcomer)
        await asyncio.sleep(0.001)
        assert leader.channels == [STEADY_CHANNEL, NEWCOMERS_CHANNEL]
        # It is put off once more, and goes before its time has come.
        await asyncio.sleep(BACKOFF_MS / 1000)
        assert leader.channels == [STEADY_CHANNEL, NEWCOMERS_CHANNEL, NEWCOMERS_CHANNEL]
        fetcher.remove(newcomer)
        await asyncio.sleep(1)
        assert leader.channels == [STEADY_CHANNEL, NEWCOMERS_CHANNEL, NEWCOMERS_CHANNEL]
        running.cancel()

    loop.run(story)
    assert loop.unhandled == []


def test_a_leader_that_cannot_commit_is_asked_ever_less_often_until_records_come() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        waits: list[int] = []
        records = [b"", b"", b"", b"", b"", b"", b"some", b""]

        async def fetch(asked: dict[Any, Any], *, wait_ms: int, **_: Any) -> list[Any]:
            if not records:
                await asyncio.Event().wait()
            waits.append(wait_ms)
            await asyncio.sleep(wait_ms / 1000)
            came = records.pop(0)
            return [SimpleNamespace(partition=one, records=came) for one in asked]

        async def take(_: Any) -> list[Any]:
            return []

        leader: Any = SimpleNamespace(fetch=fetch, take=take)
        fetcher = fetcher_from(leader, loop)
        follower: Any = FollowingPartition()
        follower.follower.is_behind_commits = True
        fetcher.add(follower)
        running = loop.create_task(fetcher.run())
        await asyncio.sleep(10)
        assert waits == [20, 40, 80, 160, 320, 500, 500, 20]
        running.cancel()

    loop.run(story)
    assert loop.unhandled == []


def test_a_round_that_waits_for_the_disk_of_one_that_leaves_goes_on_with_the_others() -> None:
    """Seed 3000632: it has another leader now, whose fetcher was told; this one waited for ever, and others lagged."""
    loop = SimLoop(1)

    async def story() -> None:
        rounds: list[list[Any]] = []

        async def fetch(asked: dict[Any, Any], **_: Any) -> list[Any]:
            rounds.append(list(asked))
            await asyncio.Event().wait()
            return []

        fetcher = fetcher_from(SimpleNamespace(fetch=fetch), loop)
        leaver: Any = FollowingPartition()
        stayer: Any = FollowingPartition()
        leaver.follower.awaits_disk = True
        fetcher.add(leaver)
        fetcher.add(stayer)
        running = loop.create_task(fetcher.run())
        await asyncio.sleep(1)
        assert rounds == []
        fetcher.remove(leaver)
        await asyncio.sleep(1)
        assert rounds == [[stayer]]
        running.cancel()

    loop.run(story)
    assert loop.unhandled == []


def test_a_round_that_waits_for_the_disk_of_a_newcomer_goes_on_when_that_is_cut_off() -> None:
    """1. A newcomer has got something that is not synced yet, and is asked for again.   2. The next round sees that,
    and waits.   3. The leader has deleted what follows, so the newcomer starts anew: nothing is left to be synced."""
    loop = SimLoop(1)

    async def story() -> None:
        channels: list[int] = []
        old: Any = FollowingPartition()
        newcomer: Any = FollowingPartition()
        asked_for: set[Any] = set()

        async def fetch(asked: dict[Any, Any], *, channel: int, **_: Any) -> list[Any]:
            channels.append(channel)
            asked_for.update(asked)
            await asyncio.sleep(WAIT_MS / 1000 if channels.count(channel) == 1 else 1.0)
            asked_for.difference_update(asked)
            return [SimpleNamespace(partition=one, records=b"", channel=channel) for one in asked]

        async def take(reply: Any) -> list[Any]:
            if reply.channel == NEWCOMERS_CHANNEL:
                newcomer.follower.awaits_disk = channels.count(NEWCOMERS_CHANNEL) == 1
            return []

        for one in (old, newcomer):
            one.follower.next_fetch = lambda one=one: None if one in asked_for else "from here"
        fetcher = fetcher_from(SimpleNamespace(fetch=fetch, take=take), loop)
        fetcher.add(old)
        running = loop.create_task(fetcher.run())
        await asyncio.sleep(0.001)
        fetcher.add(newcomer)
        await asyncio.sleep(5)
        assert channels[:2] == [STEADY_CHANNEL, NEWCOMERS_CHANNEL]
        assert channels.count(STEADY_CHANNEL) > 2
        running.cancel()

    loop.run(story)
    assert loop.unhandled == []


def test_while_much_comes_it_fetches_on_and_waits_for_the_disk_only_when_no_more_does() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        rounds: list[tuple[int, bool]] = []
        records = [
            b"x" * FETCH_AHEAD_BYTES,
            b"x" * FETCH_AHEAD_BYTES,
            b"",
            b"x" * (FETCH_AHEAD_BYTES - 1),
        ]
        follower: Any = FollowingPartition()

        async def fetch(asked: dict[Any, Any], *, wait_ms: int, **_: Any) -> list[Any]:
            if not records:
                await asyncio.Event().wait()
            rounds.append((wait_ms, follower.follower.awaits_disk))
            return [SimpleNamespace(partition=one, records=records.pop(0)) for one in asked]

        async def take(reply: Any) -> list[Any]:
            if reply.records:
                follower.follower.awaits_disk = True
            return []

        leader: Any = SimpleNamespace(fetch=fetch, take=take)
        fetcher = fetcher_from(leader, loop)
        fetcher.add(follower)
        running = loop.create_task(fetcher.run())
        await asyncio.sleep(1)
        # The third found nothing more; the leader would have kept it, had it been let.
        assert rounds == [(WAIT_MS, False), (0, True), (0, True)]
        follower.follower.awaits_disk = False
        fetcher.wake()
        await asyncio.sleep(1)
        # The fourth brought little: it has to be on the disk first.
        assert rounds[3:] == [(WAIT_MS, False)]
        running.cancel()

    loop.run(story)
    assert loop.unhandled == []


def test_who_keeps_to_a_pace_does_not_come_before_the_others_each_time() -> None:
    """A reply holds the first few of those that are asked for. Once it held the same ones each time."""
    loop = SimLoop(1)

    async def story() -> None:
        first: list[Any] = []
        partitions: list[Any] = [FollowingPartition() for _ in range(3)]

        async def fetch(asked: dict[Any, Any], **_: Any) -> list[Any]:
            first.append(next(iter(asked)))
            if len(first) > len(partitions):
                await asyncio.Event().wait()
            answers = dict.fromkeys(asked, b"") | {first[-1]: b"x" * FETCH_AHEAD_BYTES}
            return [SimpleNamespace(partition=one, records=came) for one, came in answers.items()]

        async def take(_: Any) -> list[Any]:
            return []

        fetcher = fetcher_from(SimpleNamespace(fetch=fetch, take=take), loop)
        for one in partitions:
            fetcher.add(one)
        running = loop.create_task(fetcher.run())
        await asyncio.sleep(1)
        assert first == [*partitions, partitions[0]]
        running.cancel()

    loop.run(story)
    assert loop.unhandled == []


def test_who_waits_for_its_pace_is_asked_for_as_soon_as_that_allows() -> None:
    """And not at the next time that is looked at all of them."""
    loop = SimLoop(1)

    async def story() -> None:
        asked_at: list[float] = []
        clock = NodeClock(loop)
        due_ms = clock.monotonic_ms() + BACKOFF_MS // 4

        async def fetch(_: dict[Any, Any], **__: Any) -> list[Any]:
            asked_at.append(clock.monotonic_ms())
            return await asyncio.Event().wait()  # type: ignore[return-value]

        fetcher = fetcher_from(SimpleNamespace(fetch=fetch), loop)
        fetcher._throttle = SimpleNamespace(  # type: ignore[assignment]
            wait_ms=lambda _: max(0, due_ms - clock.monotonic_ms())
        )
        follower: Any = FollowingPartition()
        fetcher.add(follower)
        running = loop.create_task(fetcher.run())
        await asyncio.sleep(1)
        assert asked_at == [due_ms]
        running.cancel()

    loop.run(story)
    assert loop.unhandled == []
