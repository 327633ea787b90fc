"""Which copies are due, and how fast they may go."""

from broker.catalog_fake import FakeCatalog, with_adding
from broker.replica_bench import ME, THREE, TWO, Bench, brokers_of, image_of, play
from respool.broker.copy_turns import CopyTurns
from respool.broker.partition import Partition
from respool.cluster.view import ClusterSettings
from respool.model.cluster import PartitionImage

BUSY = with_adding(image_of(TWO, leader=TWO), [THREE])
COPIED_HERE = with_adding(image_of(TWO, leader=TWO), [ME])


class World:
    def __init__(
        self, bench: Bench, *images: PartitionImage, limit: int = 1, bytes_per_s: int = 0
    ) -> None:
        self.catalog = FakeCatalog(*images)
        self.turns = CopyTurns(
            me=ME,
            catalog=self.catalog.as_catalog,
            clock=bench.clock,
            settings=ClusterSettings(copies_per_broker_max=limit),
            bytes_per_s_max=bytes_per_s,
        )
        self.told = 0
        self.turns.on_changed = self._on_changed
        self.turns.on_image()

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
        assert world.turns.wait_ms(first) == 0
        assert world.turns.wait_ms(second) is None
        # The first one is in sync, so it is the next one's turn.
        world.catalog.show(with_adding(image_of(ME, TWO, leader=TWO), [ME]), COPIED_HERE)
        world.turns.on_image()
        assert world.turns.wait_ms(second) == 0
        assert world.told == 2

    play(story)


def test_who_catches_up_waits_for_nobody() -> None:
    """The cluster is not safe until it has."""

    async def story(bench: Bench) -> None:
        world = World(bench, image_of(TWO, leader=TWO), bytes_per_s=1000)
        back = copy(bench, 0, image_of(TWO, leader=TWO))
        world.turns.on_copied(back, 1_000_000)
        assert world.turns.wait_ms(back) == 0

    play(story)


def test_copies_go_no_faster_than_the_operator_says() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, COPIED_HERE, COPIED_HERE, limit=8, bytes_per_s=1000)
        first, second = copy(bench, 0), copy(bench, 1)
        world.turns.on_copied(first, 500)
        world.turns.on_copied(second, 250)
        assert world.turns.wait_ms(first) == 750
        assert world.turns.wait_ms(second) == 750
        bench.clock.advance(750)
        assert world.turns.wait_ms(first) == 0
        # What was not used is not saved up.
        bench.clock.advance(60_000)
        world.turns.on_copied(first, 100)
        assert world.turns.wait_ms(first) == 100

    play(story)


def test_without_a_limit_copies_go_as_fast_as_they_can() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, COPIED_HERE)
        only = copy(bench, 0)
        world.turns.on_copied(only, 1 << 40)
        assert world.turns.wait_ms(only) == 0

    play(story)


def test_a_broker_that_is_gone_does_not_keep_others_from_copying() -> None:
    async def story(bench: Bench) -> None:
        world = World(bench, BUSY, COPIED_HERE)
        mine = copy(bench, 1)
        assert world.turns.wait_ms(mine) is None
        world.catalog.show_brokers(brokers_of(ME, TWO))
        world.turns.on_image()
        assert world.turns.wait_ms(mine) == 0

    play(story)
