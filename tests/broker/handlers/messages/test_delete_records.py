"""DeleteRecords, in every version."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.running_broker import EARLIEST, LATEST, RunningBroker
from broker.wire_client import versions
from respool.model.ids import Offset
from respool.wire.api_table import Api

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC = 3
STORAGE_ERROR = 56
TO_THE_HIGH_WATERMARK = -1

every_version = pytest.mark.parametrize("version", versions(Api.DELETE_RECORDS))


def ask(
    broker: RunningBroker, version: int, *partitions: tuple[int, int], topic: str = "rides"
) -> Any:
    """Delete below the offset in each (partition, offset); return their (low watermark, error code)."""
    wanted = [{"partition_index": index, "offset": offset} for index, offset in partitions]
    reply = broker.ask(
        Api.DELETE_RECORDS,
        version,
        topics=[{"name": topic, "partitions": wanted}],
        timeout=1000,
    )
    (answered,) = reply.topics
    assert answered.name == topic
    assert [one.partition_index for one in answered.partitions] == [one for one, _ in partitions]
    return [(one.low_watermark, one.error_code) for one in answered.partitions]


def fill(broker: RunningBroker, batches: int = 3, *, partitions: int = 1, **overrides: str) -> None:
    broker.create_topic("rides", partitions=partitions, **overrides)
    for _ in range(batches):
        broker.produce("rides", values=(b"a", b"b"))


@every_version
def test_records_below_the_offset_are_gone(running_broker: RunningBroker, version: int) -> None:
    fill(running_broker)

    assert ask(running_broker, version, (0, 3)) == [(3, 0)]

    assert running_broker.offset("rides", at=EARLIEST) == 3
    assert running_broker.offset("rides", at=LATEST) == 6


@every_version
def test_minus_one_deletes_all_that_is_committed(
    running_broker: RunningBroker, version: int
) -> None:
    fill(running_broker)

    assert ask(running_broker, version, (0, TO_THE_HIGH_WATERMARK)) == [(6, 0)]

    assert running_broker.offset("rides", at=EARLIEST) == 6
    assert running_broker.produce("rides") == 6


@every_version
def test_deleted_records_do_not_come_back_after_a_crash(
    running_broker: RunningBroker, version: int
) -> None:
    fill(running_broker)
    ask(running_broker, version, (0, 3))
    running_broker.restart(crash=True)

    assert running_broker.offset("rides", at=EARLIEST) == 3
    assert running_broker.offset("rides", at=LATEST) == 6


@pytest.mark.parametrize("flush", ["always", "interval", "os"])
def test_deleted_records_of_a_new_partition_do_not_come_back_after_a_kill(
    running_broker: RunningBroker, flush: str
) -> None:
    # Its first sync would be an hour later.
    fill(running_broker, respool_flush=flush, respool_flush_interval_ms="3600000")

    assert ask(running_broker, 2, (0, 3)) == [(3, 0)]
    running_broker.restart(kill=True)

    assert running_broker.offset("rides", at=EARLIEST) == 3
    assert running_broker.offset("rides", at=LATEST) == 6


@every_version
def test_an_offset_that_is_deleted_already_changes_nothing(
    running_broker: RunningBroker, version: int
) -> None:
    fill(running_broker)
    ask(running_broker, version, (0, 4))

    assert ask(running_broker, version, (0, 2)) == [(4, 0)]


@every_version
@pytest.mark.parametrize("offset", [7, -2])
def test_an_offset_out_of_range_is_refused_and_deletes_nothing(
    running_broker: RunningBroker, version: int, offset: int
) -> None:
    fill(running_broker)

    assert ask(running_broker, version, (0, offset)) == [(-1, OFFSET_OUT_OF_RANGE)]

    assert running_broker.offset("rides", at=EARLIEST) == 0


@every_version
def test_each_partition_is_answered_for(running_broker: RunningBroker, version: int) -> None:
    fill(running_broker, partitions=3)
    running_broker.take_offline("rides", 2)

    answers = ask(running_broker, version, (2, 0), (0, 1), (9, 0), (1, 0))

    assert answers == [(-1, STORAGE_ERROR), (1, 0), (-1, UNKNOWN_TOPIC), (0, 0)]


@every_version
def test_an_unknown_topic_is_told(running_broker: RunningBroker, version: int) -> None:
    assert ask(running_broker, version, (0, 0), topic="nobody") == [(-1, UNKNOWN_TOPIC)]


def test_files_with_nothing_left_in_them_are_removed(running_broker: RunningBroker) -> None:
    fill(running_broker, 0, segment_bytes="1024")
    for _ in range(6):
        running_broker.produce("rides", values=(b"x" * 600,))
    logs = [name for name in running_broker.disk.list_folder("rides-0") if name.endswith(".log")]
    assert len(logs) > 3

    ask(running_broker, 2, (0, 5))

    left = [name for name in running_broker.disk.list_folder("rides-0") if name.endswith(".log")]
    assert left == logs[5:]
    assert running_broker.offset("rides", at=EARLIEST) == 5


def test_a_log_start_that_could_not_be_written_down_is_not_acknowledged(
    running_broker: RunningBroker,
) -> None:
    fill(running_broker)
    running_broker.disk.faults.capacity_bytes = 0

    assert ask(running_broker, 2, (0, 3)) == [(-1, STORAGE_ERROR)]

    running_broker.disk.faults.capacity_bytes = None
    assert ask(running_broker, 2, (0, 3)) == [(3, 0)]
    running_broker.restart(crash=True)
    assert running_broker.offset("rides", at=EARLIEST) == 3


def test_without_a_cleanup_policy_only_a_client_deletes(running_broker: RunningBroker) -> None:
    fill(running_broker, cleanup_policy="", retention_ms="1", retention_bytes="0")
    running_broker.clock.advance(10**9)
    partition = running_broker.broker.partitions.find("rides", 0)
    running_broker.run(in_loop(lambda: running_broker.broker.housekeeping.clean(partition)))
    assert running_broker.offset("rides", at=EARLIEST) == 0

    assert ask(running_broker, 2, (0, 3)) == [(3, 0)]

    assert running_broker.offset("rides", at=EARLIEST) == 3


async def in_loop(work: Callable[[], None]) -> None:
    work()


@pytest.mark.parametrize(
    ("deleted", "reasons"),
    [
        (0, ["out of retention"] * 3),
        (2, ["before the log start 2"] * 2 + ["out of retention"]),
        (3, ["before the log start 3"] * 3),
    ],
)
def test_the_log_says_which_segments_are_out_of_retention_and_which_were_deleted(
    running_broker: RunningBroker,
    caplog: pytest.LogCaptureFixture,
    deleted: int,
    reasons: list[str],
) -> None:
    """All that DeleteRecords removed was once called out of retention."""
    fill(running_broker, 0, segment_bytes="1024", retention_ms="1000")
    for _ in range(3):
        running_broker.produce("rides", values=(b"x" * 600,))
    running_broker.clock.advance(5_000)
    running_broker.produce("rides", values=(b"x" * 600,))
    with caplog.at_level("INFO", logger="respool.broker.partitions.housekeeping"):
        log = running_broker.broker.partitions.find("rides", 0).log
        log.raise_log_start(Offset(deleted))
        ask(running_broker, 2, (0, deleted))
    lines = [line for line in caplog.messages if "removed the segment" in line]
    assert [line.split("bytes), ")[1] for line in lines] == reasons
