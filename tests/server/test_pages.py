import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.running_broker import RunningBroker
from respool.model.cluster import BrokerEndpoint
from respool.model.ids import BrokerId
from respool.server import pages
from respool.server.http_endpoint import Page
from respool.server.pages import NAMED_MAX, Health, MetricsPage


def body(page: Page) -> tuple[int, str]:
    return page.status.code, b"".join(page.body).decode()


def test_a_broker_that_starts_or_stops_is_alive_and_says_why_it_is_not_ready(
    running_broker: RunningBroker,
) -> None:
    health = Health()
    seen = []

    def look() -> None:
        seen.append(body(asyncio.run(health.readyz())))
        assert body(asyncio.run(health.healthz())) == (200, "ok\n")

    look()
    health.on_starting(running_broker.broker)
    look()
    running_broker.broker._partitions_to_open = 12
    look()
    running_broker.broker._partitions_to_open = None
    health.on_joining()
    look()
    health.on_serving()
    look()
    health.on_stopping()
    look()
    assert seen == [
        (503, "starting: connecting to the metadata store\n"),
        (503, "starting: opening the data folder\n"),
        (503, "starting: recovering logs, 0 of 12 partitions are open\n"),
        (503, "starting: joining the cluster\n"),
        (200, "ready\n"),
        (503, "stopping\n"),
    ]


def serving(broker: Any) -> Health:
    health = Health()
    health.on_starting(broker)
    health.on_serving()
    return health


def test_offline_partitions_are_counted_and_some_of_them_named(
    running_broker: RunningBroker,
) -> None:
    health = serving(running_broker.broker)
    running_broker.create_topic("rides", partitions=NAMED_MAX + 2)
    assert health.reasons() == []
    for number in range(NAMED_MAX + 1):
        running_broker.take_offline("rides", number)
    (reason,) = health.reasons()
    assert reason.startswith(f"{NAMED_MAX + 1} partitions are offline: rides-0 (as the test")
    assert reason.endswith(" and 1 more")


def test_a_broken_invariant_makes_it_unhealthy(running_broker: RunningBroker) -> None:
    health = serving(running_broker.broker)
    running_broker.broker.failed.set_result(AssertionError("two leaders"))
    code, text = body(asyncio.run(health.healthz()))
    assert code == 503
    assert "two leaders" in text


@pytest.mark.parametrize(
    ("epoch", "may_act", "is_draining", "reason"),
    [
        (None, False, False, "broker 2 is not registered in the cluster"),
        (5, False, False, "the broker's lease is not valid"),
        (5, True, True, "broker 2 is draining"),
        (5, True, False, None),
    ],
)
def test_a_broker_of_a_cluster_is_ready_while_it_may_act(
    epoch: int | None, may_act: bool, is_draining: bool, reason: str | None
) -> None:
    me = BrokerEndpoint(id=BrokerId(2), host="a", port=1, is_draining=is_draining)
    broker = SimpleNamespace(
        id=2,
        member=SimpleNamespace(epoch=epoch),
        may_act=lambda: may_act,
        image=SimpleNamespace(brokers={2: me}),
        partitions=(),
        opening=None,
    )
    reasons = serving(broker).reasons()
    assert reasons == [] if reason is None else reasons[0].startswith(reason)


def test_the_loop_turns_whenever_a_slice_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    time_s = 0.0
    turns = 0
    monkeypatch.setattr(pages, "perf_counter", lambda: time_s)

    def pieces() -> Iterator[bytes]:
        nonlocal time_s
        for number in range(10):
            time_s += pages.SLICE_S / 2
            yield str(number).encode()

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def story() -> None:
        counting = asyncio.ensure_future(count_turns())
        await asyncio.sleep(0)
        page = await MetricsPage(pieces).make()
        counting.cancel()
        assert b"".join(page.body) == b"0123456789"
        assert page.content_type.startswith("text/plain; version=0.0.4")

    asyncio.run(story())
    assert turns >= 5


def test_scrapes_at_the_same_time_share_one_making() -> None:
    makings = 0

    def pieces() -> Iterator[bytes]:
        nonlocal makings
        makings += 1
        yield b"x"

    async def story() -> None:
        page = MetricsPage(pieces)
        first = asyncio.ensure_future(page.make())
        second, third = asyncio.ensure_future(page.make()), asyncio.ensure_future(page.make())
        await asyncio.sleep(0)
        # Whoever came first may go.
        first.cancel()
        assert (await second).body == (await third).body == [b"x"]
        assert makings == 1
        await page.make()
        assert makings == 2

    asyncio.run(story())
