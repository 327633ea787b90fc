"""Fetch from readers on the broker's own machine: they are told where large reads lie, and all else is as ever."""

from dataclasses import replace
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import Producer, start_with_transactions
from respool.log.log_reader import LocatedBatches
from respool.log.partition_log import PartitionLog, ReadSpec
from respool.ports.disk import NotCached
from respool.wire.api_table import Api
from respool.wire.fetch_reply import FetchedPart, read_fetch_reply

VERSION = 13
READ_COMMITTED = 1


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_transactions(start_broker)
    for number in range(5):
        broker.produce("rides", values=(b"%d" % number * 100,))
    return broker


def fetch(
    broker: RunningBroker, *, host: str | None = None, offset: int = 0, **fields: Any
) -> FetchedPart:
    """As a reader on the broker's machine, or on another."""
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    asked = {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "topics": [{"topic_id": broker.broker.image.topics["rides"].id, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
        "reader_host": broker.local_reader.host if host is None else host,
    }
    reply = broker.frame(Api.FETCH, VERSION, **asked | fields)
    (part,) = read_fetch_reply(memoryview(reply), VERSION).parts
    return part


def local_read(broker: RunningBroker, part: FetchedPart) -> bytes:
    assert part.file_range is not None
    assert not part.records
    return bytes(broker.run(broker.local_reader.read(part.file_range)))


def test_a_neighbour_is_lent_what_others_are_sent(broker: RunningBroker) -> None:
    sent = fetch(broker, host="another machine")
    assert sent.file_range is None
    assert len(sent.records) > 500
    near = fetch(broker)
    assert local_read(broker, near) == sent.records
    assert (near.high_watermark, near.last_stable_offset, near.log_start) == (5, 5, 0)
    assert broker.metrics.value("respool_lent_bytes_total") == len(sent.records)


@pytest.mark.parametrize("offset", range(5))
def test_it_is_lent_from_the_offset_it_asks_for(broker: RunningBroker, offset: int) -> None:
    far = fetch(broker, host="", offset=offset)
    assert local_read(broker, fetch(broker, offset=offset)) == far.records


def test_limits_are_those_of_what_is_sent(broker: RunningBroker) -> None:
    # From memory come whole batches only.
    broker.forget_tails()
    for limit in (10, 200, 350):
        far = fetch(broker, host="", max_bytes=limit)
        assert local_read(broker, fetch(broker, max_bytes=limit)) == far.records


def test_at_the_end_of_the_log_there_is_nothing_to_lend(broker: RunningBroker) -> None:
    part = fetch(broker, offset=5)
    assert (part.file_range, bytes(part.records), part.error_code) == (None, b"", 0)
    assert fetch(broker, offset=6).error_code == 1


def test_little_is_sent(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(fetch(broker, host="").records)
    monkeypatch.setattr(broker.local_reader, "local_read_bytes_min", size + 1)
    part = fetch(broker)
    assert (part.file_range, len(part.records)) == (None, size)


def test_a_broker_that_does_not_lend_sends(broker: RunningBroker) -> None:
    broker.broker.world = replace(broker.broker.world, local_reader=None)
    part = fetch(broker)
    assert part.file_range is None
    assert part.records


def test_what_a_transaction_has_open_is_not_lent(broker: RunningBroker) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"open")
    part = fetch(broker, isolation_level=READ_COMMITTED)
    assert (
        local_read(broker, part) == fetch(broker, host="", isolation_level=READ_COMMITTED).records
    )
    assert len(local_read(broker, fetch(broker))) > len(local_read(broker, part))


def test_a_reader_is_told_what_was_aborted_of_what_it_is_lent(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"lost")
    producer.abort()
    broker.produce("rides", values=(b"later",))
    part = fetch(broker, isolation_level=READ_COMMITTED)
    assert part.aborted == ((producer.id, 5),)
    assert local_read(broker, part) == fetch(broker, host="").records
    # Behind it there is nothing to tell, and who does not care is told nothing.
    behind = fetch(broker, offset=7, isolation_level=READ_COMMITTED)
    assert local_read(broker, behind)
    assert behind.aborted == fetch(broker).aborted == ()
    monkeypatch.setattr("respool.broker.fetch.partition_read.LOCAL_READ_ABORTED_MAX", 0)
    many = fetch(broker, isolation_level=READ_COMMITTED)
    assert (many.file_range, many.aborted) == (None, ((producer.id, 5),))
    assert many.records


def test_who_waits_for_more_does_not_wait_for_what_is_lent(broker: RunningBroker) -> None:
    assert local_read(broker, fetch(broker, max_wait=60_000, min_bytes=400))


def test_what_is_lent_takes_no_memory_of_replies(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = broker.broker.memory
    take, taken = memory.charge, []

    def watched(amount: int, **_: bool) -> None:
        taken.append(amount)
        take(amount)

    monkeypatch.setattr(memory, "charge", watched)
    # Who waited is charged as soon as the answer is read.
    waiting: dict[str, Any] = {"max_wait": 1, "min_bytes": 1 << 20}
    assert local_read(broker, fetch(broker, **waiting))
    sent = fetch(broker, host="", **waiting)
    assert taken == [0, len(sent.records)]
    assert memory.used == 0


def test_where_the_index_is_not_in_memory_another_thread_looks_for_the_place(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    locate, cached_only = PartitionLog.locate, []

    def from_disk(log: PartitionLog, spec: ReadSpec) -> LocatedBatches | None:
        cached_only.append(spec.cached_only)
        if spec.cached_only:
            raise NotCached
        return locate(log, spec)

    monkeypatch.setattr(PartitionLog, "locate", from_disk)
    assert local_read(broker, fetch(broker)) == fetch(broker, host="").records
    assert cached_only == [True, False]
