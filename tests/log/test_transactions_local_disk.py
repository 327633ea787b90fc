"""Readers of committed records in other threads, on real files, while transactions come and go."""

import threading
from pathlib import Path
from random import Random

from log.transaction_world import KEPT, TransactionWorld
from respool.drivers.local_disk import LocalDisk
from respool.log.partition_log import PartitionLog
from respool.model.ids import Offset

TRANSACTIONS = 400


class Reading(TransactionWorld):
    """A reader's view: where the log is stable is told by the writer, never beyond what it knows to be decided."""

    stable = Offset(0)

    @property
    def last_stable_offset(self) -> Offset:
        return self.stable


def open_log(root: Path) -> PartitionLog:
    return PartitionLog.open(
        disk=LocalDisk(str(root)),
        folder="rides-0",
        config=KEPT,
        now_ms=0,
        log_start=Offset(0),
        recovery_point=Offset(0),
        clean=False,
        producer_expiration_ms=10**12,
    )


def test_readers_in_other_threads_never_see_what_was_aborted(tmp_path: Path) -> None:
    # The simulated disk of this one is not used.
    world = Reading.new()
    world.log = open_log(tmp_path)
    failures: list[BaseException] = []
    is_over = threading.Event()

    def read(seed: int) -> None:
        rng = Random(seed)
        try:
            while not is_over.is_set():
                begin = Offset(rng.randint(0, world.stable))
                seen = [
                    one.value or b"" for one in world.read_committed(begin, rng.choice([300, 5000]))
                ]
                assert all(value.endswith(b"v") for value in seen), "an aborted record"
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    for reader in readers:
        reader.start()
    rng = Random(5)
    expected = 0
    for _ in range(TRANSACTIONS):
        producer, is_commit = rng.randint(1, 3), rng.random() < 0.5
        # What is to be aborted ends in another letter.
        world.write(producer, "a", "b", size=20 if is_commit else 0)
        world.end(producer, is_commit=is_commit)
        expected += 2 * is_commit
        world.high_watermark = world.log.log_end
        world.log.on_high_watermark(world.high_watermark)
        world.stable = world.log.last_stable_offset(world.high_watermark)
    is_over.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert len(list(world.read_committed(Offset(0), 1000))) == expected
    world.log.close()
