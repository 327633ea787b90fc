"""How soon a broker works: with nothing, and with a large log after a clean stop and after kill -9."""

from collections.abc import Sequence

from bench.broker_process import free_bytes
from bench.scale import GB, KB, size_text
from bench.versus.arena import Arena
from bench.versus.contender import Contender, started
from bench.versus.filled_topic import fill
from bench.versus.first_produce import start_to_first_produce, wait_for_produce
from bench.versus.rounds import turns
from bench.versus.row import Unit

FAMILY = "Start to first accepted message"
TOPIC = "filled"
PARTITIONS = 6
BATCH_BYTES = 256 * KB
MESSAGE_BYTES_IN_LOG = 110
# Left on the disk by both logs together.
FREE_BYTES_MIN = 8 * GB
# Written before each kill, so that every one of them finds something unsynced.
LATE_MESSAGES = 1_000_000


def run(arena: Arena) -> None:
    """Needs brokers of its own: they are stopped and killed."""
    log_bytes = _possible_bytes(arena)
    size = size_text(log_bytes)
    arena.results.note(
        FAMILY,
        "From the start of the process until a message is accepted with acks=1. Empty: a few topics of one message, "
        f"and a new one is created first, as part of the time. The log of {size} lies in {PARTITIONS} partitions; "
        f"{LATE_MESSAGES:,} messages are written after a start and before each kill -9.",
    )
    with started(arena.jars) as both:
        pair = both.like_with_like
        _empty(arena, pair)
        for contender in pair:
            arena.progress(f"{FAMILY}: filling {size}: {contender.name}")
            messages = log_bytes // MESSAGE_BYTES_IN_LOG
            fill(
                contender, TOPIC, messages=messages, partitions=PARTITIONS, batch_bytes=BATCH_BYTES
            )
        for _, contender in turns(pair, rounds=arena.sizes.rounds_start):
            arena.progress(f"{FAMILY}: {size}, after a clean stop: {contender.name}")
            contender.broker.stop()
            _add(arena, f"{size} of log, after a clean stop", contender, TOPIC, is_new=False)
        for number, contender in turns(pair, rounds=arena.sizes.rounds_start):
            arena.progress(f"{FAMILY}: {size}, after kill -9: {contender.name}")
            late = f"late-{number}"
            fill(contender, late, messages=LATE_MESSAGES, partitions=PARTITIONS)
            contender.broker.kill()
            _add(arena, f"{size} of log, after kill -9", contender, TOPIC, is_new=False)


def _empty(arena: Arena, pair: Sequence[Contender]) -> None:
    for contender in pair:
        wait_for_produce(contender, "first", is_new=True)
    for number, contender in turns(pair, rounds=arena.sizes.rounds):
        arena.progress(f"{FAMILY}: empty: {contender.name}")
        contender.broker.stop()
        _add(arena, "empty", contender, f"new-{number}", is_new=True)


def _add(arena: Arena, row: str, contender: Contender, topic: str, *, is_new: bool) -> None:
    seconds = start_to_first_produce(contender, topic, is_new=is_new)
    arena.results.add(FAMILY, row, Unit.SECONDS, contender.name, seconds)


def _possible_bytes(arena: Arena) -> int:
    """What was asked for, or what the disk has room for."""
    wanted = arena.sizes.start_log_bytes
    possible = (free_bytes() - FREE_BYTES_MIN) // 2
    if possible < wanted:
        arena.results.note(
            FAMILY, f"The disk has no room for {size_text(wanted)} of log at each broker."
        )
    return max(GB // 4, min(wanted, possible) // GB * GB)
