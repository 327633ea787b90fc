"""Any sequence of passing faults, in any number of partitions: the table is the log, message by message."""

import os
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from respool.client.arrow.reading.read import read_table
from respool.client.arrow.reading.read_plan import PartitionRange
from respool.client.arrow.reading.stream import _shares
from respool.wire.codec import Request
from respool.wire.hot_replies import FetchedPartition
from support.scripted_broker import HANG_UP, TOPIC, ScriptedBroker

EXAMPLES = 500 if os.environ.get("RESPOOL_FUZZ") == "long" else 30
# What one fetch may meet; each with a number that says more.
FAULTS = (
    "good",
    "few bytes",
    "nothing",
    "refused",
    "hang up",
    "garbled",
    "new epoch",
    "one refused",
)
PASSING = (3, 5, 6, 9, 56, 74, 75, 78, 100)
faults = st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 400)), max_size=8)


@settings(max_examples=EXAMPLES)
@given(
    partitions=st.integers(1, 4),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    story=faults,
    fetch_bytes=st.integers(1, 1_000),
    parallel=st.integers(1, 3),
)
def test_after_any_passing_faults_everything_was_read_once(
    partitions: int,
    sizes: list[int],
    story: list[tuple[str, int]],
    fetch_bytes: int,
    parallel: int,
) -> None:
    with ScriptedBroker(partitions=partitions) as broker:
        for size in sizes:
            broker.append(*[b"%d" % number for number in range(size)])
        broker.script += [fault(broker, name, number) for name, number in story]
        table = read_table(
            TOPIC,
            bootstrap=broker.address,
            columns=["partition", "offset", "value"],
            fetch_bytes=fetch_bytes,
            parallel=parallel,
        )
    log = [b"%d" % number for size in sizes for number in range(size)]
    assert list(zip(*(column.to_pylist() for column in table.columns), strict=True)) == [
        (partition, offset, value)
        for partition in range(partitions)
        for offset, value in enumerate(log)
    ]


def fault(broker: ScriptedBroker, name: str, number: int) -> Any:
    def few(one: Any) -> FetchedPartition:
        whole = broker._read(one)
        assert isinstance(whole.records, bytes)
        return whole._replace(records=whole.records[:number])

    def one_refused(one: Any) -> FetchedPartition:
        if one.partition == number % broker.partitions:
            return FetchedPartition(one.partition, PASSING[number % len(PASSING)], -1, -1, -1, b"")
        return broker._read(one)

    def new_epoch(request: Request) -> bytes:
        broker.leader_epoch += 1
        return broker.refuse(74)(request)

    return {
        "good": broker.good,
        "few bytes": lambda request: broker.fetched(request, few),
        "nothing": lambda request: broker.fetched(
            request, lambda one: broker._read(one)._replace(records=b"")
        ),
        "refused": broker.refuse(PASSING[number % len(PASSING)]),
        "hang up": lambda _: HANG_UP,
        "garbled": lambda request: (
            b"\0\0\0\x08" + request.correlation_id.to_bytes(4, "big") + b"\x7f" * 4
        ),
        "new epoch": new_epoch,
        "one refused": lambda request: broker.fetched(request, one_refused),
    }[name]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.none() | st.integers(0, 100)), max_size=20),
    st.integers(1, 5),
)
def test_every_range_that_is_not_empty_is_read_by_one_thread(
    bounds: list[tuple[int, int | None]], parallel: int
) -> None:
    ranges = [
        PartitionRange(partition=number, begin=begin, end=end)
        for number, (begin, end) in enumerate(bounds)
    ]
    shares: Sequence[Sequence[PartitionRange]] = _shares(ranges, parallel)
    dealt = sorted((one for share in shares for one in share), key=lambda one: one.partition)
    assert dealt == [one for one in ranges if not one.is_empty]
    assert all(shares)
    assert len(shares) <= parallel
