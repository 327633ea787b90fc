"""A log opened with a high watermark below its end tells readers of committed records what its leader would."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log.transaction_world import FOLDER, FUZZ, TransactionWorld, transactions_of
from respool.log.partition_log import PartitionLog
from respool.model.ids import Offset

WAYS = ("clean", "kill", "crash")


def stable_offset(world: TransactionWorld, high_watermark: int) -> int:
    """By looking at everything: where the first transaction began that is not decided below the high watermark."""
    undecided = [
        one.first_offset
        for one in transactions_of(world.history)
        if one.end is None or one.end.base_offset >= high_watermark
    ]
    return min([high_watermark, *undecided])


def reopen(world: TransactionWorld, high_watermark: int, way: str) -> PartitionLog:
    if way == "clean":
        world.log.close()
    elif (pending := world.log.begin_sync()) is not None:
        pending.run()
        world.log.finish_sync(pending)
    world.write_checkpoint()
    if way == "crash":
        world.disk.crash()
    elif way == "kill":
        world.disk.kill()
    world.disk = world.disk.reopen()
    world.log = PartitionLog.open(
        disk=world.disk,
        folder=FOLDER,
        config=world.config,
        now_ms=world.now_ms,
        log_start=world.log_start_written,
        recovery_point=world.recovery_point,
        clean=way == "clean",
        producer_expiration_ms=10**12,
        high_watermark=Offset(high_watermark),
        is_replicated=True,
    )
    assert world.log.log_end == world.log_end
    return world.log


def check_from(world: TransactionWorld, high_watermark: int) -> None:
    """Now, and whenever it is raised until all is committed."""
    log = world.log
    for offset in range(high_watermark, log.log_end + 1):
        log.on_high_watermark(Offset(offset))
        assert log.last_stable_offset(Offset(offset)) == stable_offset(world, offset), offset


def told(*story: str) -> TransactionWorld:
    """Words of a producer's number and what it does: w(rite), c(ommit), a(bort); "roll" and "-w" are by nobody."""
    world = TransactionWorld.new()
    for word in story:
        match word[-1]:
            case "l":
                world.roll()
            case "w":
                world.write(-1 if word == "-w" else int(word[:-1]), "k")
            case end:
                world.end(int(word[:-1]), is_commit=end == "c")
    return world


@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_keeps_readers_back_until_its_end_is_committed(way: str) -> None:
    world = told("-w", "1w", "1c", "-w")
    log = reopen(world, 2, way)
    assert log.last_stable_offset(Offset(2)) == 1
    log.on_high_watermark(Offset(3))
    assert log.last_stable_offset(Offset(3)) == 3


@pytest.mark.parametrize("way", WAYS)
def test_a_transaction_is_known_though_it_began_in_an_earlier_segment(way: str) -> None:
    world = told("1w", "roll", "-w", "roll", "-w", "1a", "2w")
    log = reopen(world, 3, way)
    assert log.last_stable_offset(Offset(3)) == 0
    check_from(world, 3)


def test_without_a_high_watermark_all_is_committed() -> None:
    world = told("1w", "1c")
    world.stop_and_start()
    assert world.log.last_stable_offset(Offset(2)) == 2


def test_a_clean_start_reads_no_header_where_all_is_committed() -> None:
    world = told("1w", "1c", "2w")
    reopen(world, world.log_end, "clean")
    assert world.disk.counters.reads == 0


def test_a_high_watermark_beyond_the_log_is_that_of_its_end() -> None:
    world = told("1w", "1c", "2w")
    log = reopen(world, 9, "kill")
    assert log.last_stable_offset(Offset(3)) == 2


def test_a_transaction_whose_end_is_cut_off_is_open_again() -> None:
    world = told("1w", "2w", "1c", "2a")
    log = reopen(world, 2, "clean")
    log.truncate_to(Offset(3))
    assert log.has_open_transaction(2)
    assert not log.has_open_transaction(1)
    assert log.last_stable_offset(Offset(2)) == 0
    log.on_high_watermark(Offset(3))
    assert log.last_stable_offset(Offset(3)) == 1


class Ending(NamedTuple):
    way: str
    # Where the high watermark and the cut are, in hundredths of the log.
    committed: int
    cut: int


WORDS = st.sampled_from(
    ["-w", "roll", *(f"{number}{what}" for number in (1, 2, 3) for what in "wwca")]
)
ENDINGS = st.builds(
    Ending,
    way=st.sampled_from(WAYS),
    committed=st.integers(0, 100),
    cut=st.integers(0, 120),
)


@given(story=st.lists(WORDS, max_size=25), endings=st.lists(ENDINGS, min_size=1, max_size=3))
@settings(max_examples=3000 if FUZZ else 150, deadline=None)
def test_the_last_stable_offset_is_what_the_whole_log_tells(
    story: list[str], endings: list[Ending]
) -> None:
    world = told(*story)
    check_from(world, 0)
    for ending in endings:
        high_watermark = world.log_end * ending.committed // 100
        log = reopen(world, high_watermark, ending.way)
        assert log.last_stable_offset(Offset(high_watermark)) == stable_offset(
            world, high_watermark
        )
        # Below the high watermark, too: another leader may have less.
        cut = min(world.log_end * ending.cut // 100, world.log_end)
        world.recovery_point = min(world.recovery_point, Offset(cut))
        log.truncate_to(Offset(cut))
        world.history = [one for one in world.history if one.next_offset <= cut]
        assert log.log_end == world.log_end
        opened = {one.producer_id for one in log.active_producers() if one.has_open_transaction}
        assert opened == set(world.open_producers())
        check_from(world, min(high_watermark, world.log_end))
