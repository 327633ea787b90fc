"""Which copies are due, and how fast they may go."""

from broker.catalog_fake import FakeCatalog, with_adding
from broker.replica_bench import ME, THREE, TWO, Bench, brokers_of, image_of, play
from respool.broker.partitions.partition import Partition
from respool.broker.replication.replication_throttle import WAIT_MS_MAX, ReplicationThrottle
from respool.model.cluster import PartitionImage
from respool.model.cluster_settings import ControllerSettings

BUSY = with_adding(image_of(TWO, leader=TWO), [THREE])
COPIED_HERE = with_adding(image_of(TWO, leader=TWO), [ME])


class World:
    def __init__(
        self, bench: Bench, *images: PartitionImage, limit: int = 1, bytes_per_s: int = 0
    ) -> None:
        self.catalog = FakeCatalog(*images)
        if bytes_per_s:
            self.catalog.show_settings(str(ME), respool_copy_bytes_per_s_max=bytes_per_s)
        self.throttle = ReplicationThrottle(
            me=ME,
            catalog=self.catalog.as_catalog,
            clock=bench.clock,
            settings=ControllerSettings(copies_per_broker_max=limit),
        )
        self.told = 0
        self.throttle.on_changed = self._on_changed
        self.throttle.on_image()

    def _on_changed(self) -> None:
        self.told += 1


def copy(bench: Bench, number: int, image: PartitionImage = COPIED_HERE) -> Partition:
    partition = bench.partition(number)
    bench.follow(partition, image)
    return partition


def test_so_many_are_copied_at_once_and_the_others_wait_for_their_turn() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, COPIED_HERE, COPIED_HERE)
        first, second = copy(bench, 0), copy(bench, 1)
        assert world.throttle.wait_ms(first) == 0
        assert world.throttle.wait_ms(second) is None
        # The first one is in sync, so it is the next one's turn.
        world.catalog.show(with_adding(image_of(ME, TWO, leader=TWO), [ME]), COPIED_HERE)
        world.throttle.on_image()
        assert world.throttle.wait_ms(second) == 0
        assert world.told == 2

    play(story)


def test_who_catches_up_waits_for_nobody() -> None:
    """The cluster is not safe until it has."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of(TWO, leader=TWO), bytes_per_s=1000)
        back = copy(bench, 0, image_of(TWO, leader=TWO))
        world.throttle.on_copied(back, 1_000_000)
        assert world.throttle.wait_ms(back) == 0

    play(story)


def test_copies_go_no_faster_than_the_operator_says() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, COPIED_HERE, COPIED_HERE, limit=8, bytes_per_s=1000)
        first, second = copy(bench, 0), copy(bench, 1)
        world.throttle.on_copied(first, 500)
        world.throttle.on_copied(second, 250)
        assert world.throttle.wait_ms(first) == 750
        assert world.throttle.wait_ms(second) == 750
        bench.clock.advance(750)
        assert world.throttle.wait_ms(first) == 0
        # What was not used is not saved up for long.
        bench.clock.advance(60_000)
        world.throttle.on_copied(first, 1100)
        assert world.throttle.wait_ms(first) == 100

    play(story)


def test_without_a_limit_copies_go_as_fast_as_they_can() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, COPIED_HERE)
        only = copy(bench, 0)
        world.throttle.on_copied(only, 1 << 40)
        assert world.throttle.wait_ms(only) == 0

    play(story)


def test_a_broker_that_is_gone_does_not_keep_others_from_copying() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, BUSY, COPIED_HERE)
        mine = copy(bench, 1)
        assert world.throttle.wait_ms(mine) is None
        world.catalog.show_brokers(brokers_of(ME, TWO))
        world.throttle.on_image()
        assert world.throttle.wait_ms(mine) == 0

    play(story)


CATCHING_UP = image_of(TWO, leader=TWO)


def test_throttled_replicas_keep_to_the_rate_of_their_broker_also_those_that_are_not_new() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, CATCHING_UP, CATCHING_UP)
        world.catalog.show(
            CATCHING_UP, CATCHING_UP, follower_replication_throttled_replicas=f"0:{ME}"
        )
        world.catalog.show_settings(str(ME), follower_replication_throttled_rate=1000)
        world.throttle.on_image()
        listed, other = copy(bench, 0, CATCHING_UP), copy(bench, 1, CATCHING_UP)
        world.throttle.on_copied(listed, 500)
        world.throttle.on_copied(other, 500)
        assert (world.throttle.wait_ms(listed), world.throttle.wait_ms(other)) == (500, 0)

    play(story)


def test_throttled_replicas_keep_to_the_rate_of_their_leader() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, CATCHING_UP)
        world.catalog.show(CATCHING_UP, leader_replication_throttled_replicas=f"0:{TWO}")
        # Broker 3 catches up, too, and takes its half.
        world.catalog.show_settings(str(TWO), leader_replication_throttled_rate=1000)
        world.throttle.on_image()
        mine = copy(bench, 0, CATCHING_UP)
        world.throttle.on_copied(mine, 250)
        assert world.throttle.wait_ms(mine) == 500

    play(story)


def test_who_is_in_sync_is_not_throttled() -> None:
    """Else acks=all would wait for it."""

    async def story(bench: Bench) -> None:
        in_sync = image_of(TWO, ME, leader=TWO)
        world = World(bench, in_sync)
        world.catalog.show(in_sync, follower_replication_throttled_replicas="*")
        world.catalog.show_settings("", follower_replication_throttled_rate=1)
        world.throttle.on_image()
        mine = copy(bench, 0, in_sync)
        world.throttle.on_copied(mine, 1 << 30)
        assert world.throttle.wait_ms(mine) == 0

    play(story)


def test_who_is_told_to_go_on_does_so_soon_however_long_it_was_to_wait() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, COPIED_HERE, bytes_per_s=1)
        mine = copy(bench, 0)
        world.throttle.on_copied(mine, 1 << 30)
        assert world.throttle.wait_ms(mine) == WAIT_MS_MAX
        world.catalog.show_settings(str(ME))
        world.throttle.on_image()
        assert world.throttle.wait_ms(mine) == 0

    play(story)


def test_where_nothing_is_copied_changes_cost_no_look_at_the_whole_cluster() -> None:
    """There may be thousands of them at once, as when a broker dies."""

    async def story(bench: Bench) -> None:
        in_sync = image_of(TWO, ME, leader=TWO)
        world = World(bench, in_sync)
        world.catalog.show_settings("", leader_replication_throttled_rate=1)
        looks = world.catalog.views
        world.throttle.on_image()
        assert world.catalog.views == looks
        # A rate that was left behind, with no topic that it is about.
        world.catalog.show(CATCHING_UP)
        world.throttle.on_image()
        assert world.catalog.views == looks
        world.catalog.show(CATCHING_UP, leader_replication_throttled_replicas="*")
        world.throttle.on_image()
        assert world.catalog.views == looks + 1

    play(story)
