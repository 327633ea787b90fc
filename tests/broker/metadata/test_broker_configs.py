"""Settings of brokers, changed by several of them on one metadata store."""

from pathlib import Path

from broker.catalog_world import ONE, TWO, World, play
from respool.broker.metadata.broker_configs import BrokerConfigs

RATE = "leader.replication.throttled.rate"


def test_that_there_is_nothing_to_be_done_is_true_of_the_store_and_not_only_of_what_is_known_here(
    tmp_path: Path,
) -> None:
    """1. A throttle is set by one broker.   2. Another, that has not heard of it, is told to take it away."""

    async def story(world: World) -> None:
        node, behind = await world.start(ONE, TWO)
        await BrokerConfigs(node.catalog).change("", lambda _: {RATE: "1000"})
        assert behind.catalog.image.broker_overrides == {}
        await BrokerConfigs(behind.catalog).change("", lambda _: {})
        await node.catalog.read_view()
        assert node.catalog.image.broker_overrides == {}

    play(tmp_path, story)
