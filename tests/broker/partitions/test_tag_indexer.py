"""Tag indexes as the broker makes and uses them: for which topics, when, and what readers of views pass over."""

import asyncio
import logging
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.views.reading import Client
from broker.views.view_broker import add_view, fetch, produce
from respool.model.errors import DiskFull

PAID = "rides.v.paid"
SMALL: dict[str, Any] = {"segment_bytes": "1024"}


def index(broker: RunningBroker) -> None:
    broker.run(broker.broker.housekeeping._tag_indexer.index_all())


def files(broker: RunningBroker) -> list[str]:
    return [name for name in broker.disk.list_folder("rides-0") if name.endswith(".tagindex")]


def skipped(broker: RunningBroker) -> float:
    return broker.metrics.value("respool_view_skipped_bytes_total")


def fill(broker: RunningBroker, *, batches: int = 30) -> None:
    for number in range(batches):
        produce(broker, "paid" if number == 17 else "new", "old")


def shown(broker: RunningBroker) -> list[int]:
    """Read the view from disk to its end: offsets of what it shows."""
    client = Client(0)
    end = broker.broker.partitions.find("rides", 0).high_watermark
    broker.forget_tails()
    for name in broker.disk.list_folder("rides-0"):
        if name.endswith(".log"):
            broker.disk.make_cold(f"rides-0/{name}")
    while client.position < end:
        client.take(fetch(broker, PAID, offset=client.position).records)
    return [int(one.offset) for one in client.records]


def test_a_topic_with_a_view_is_indexed_and_its_readers_pass_over_the_rest(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", **SMALL)
    fill(running_broker)
    index(running_broker)
    assert files(running_broker) == []
    add_view(running_broker, PAID, "tag = 'paid'")
    assert shown(running_broker) == [34]
    assert skipped(running_broker) == 0

    index(running_broker)

    log = running_broker.broker.partitions.find("rides", 0).log
    assert len(files(running_broker)) == log.segment_count - 1
    # What the cache remembers would hide what is read.
    running_broker.broker.views.cache._verdicts.clear()
    scanned = running_broker.metrics.value("respool_view_scanned_bytes_total")
    assert shown(running_broker) == [34]
    one_batch = log.size_bytes / 30
    assert skipped(running_broker) == pytest.approx(log.size_bytes - one_batch, abs=one_batch)
    assert (
        running_broker.metrics.value("respool_view_scanned_bytes_total") - scanned < 2 * one_batch
    )


def test_a_topic_setting_names_headers_before_there_is_a_view(
    running_broker: RunningBroker,
) -> None:
    running_broker.create_topic("rides", respool_tags="tag,key", **SMALL)
    fill(running_broker)
    index(running_broker)
    made = files(running_broker)
    assert made
    add_view(running_broker, PAID, "tag = 'paid'")
    assert shown(running_broker) == [34]
    assert skipped(running_broker) > 0


def test_other_topics_have_no_index(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", **SMALL)
    fill(running_broker)
    running_broker.create_topic("others")
    add_view(running_broker, PAID, "tag = 'paid'", of="others")
    index(running_broker)
    assert files(running_broker) == []


def test_an_index_that_is_there_is_used_after_a_restart(running_broker: RunningBroker) -> None:
    running_broker.create_topic("rides", respool_tags="tag", **SMALL)
    fill(running_broker)
    index(running_broker)
    secret = running_broker.disk.read_file("tag-index-secret")
    running_broker.restart()
    add_view(running_broker, PAID, "tag = 'paid'")
    index(running_broker)
    assert running_broker.disk.read_file("tag-index-secret") == secret
    assert shown(running_broker) == [34]
    assert skipped(running_broker) > 0


def test_it_is_made_in_the_background(start_broker: StartBroker) -> None:
    broker = start_broker(tag_index_check_ms=10)
    broker.create_topic("rides", respool_tags="tag", **SMALL)
    fill(broker)

    async def wait() -> None:
        for _ in range(1_000):
            if files(broker):
                return
            await asyncio.sleep(0.01)

    broker.run(wait())
    assert files(broker)


def test_without_room_it_is_made_later(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    running_broker.create_topic("rides", respool_tags="tag", **SMALL)
    fill(running_broker)
    running_broker.disk.faults.fail("replace", path="rides-0/*.tagindex", error=DiskFull)
    with caplog.at_level(logging.WARNING):
        index(running_broker)
    assert "no room for its tag index" in caplog.text
    assert running_broker.broker.partitions.find("rides", 0).is_online
    index(running_broker)
    assert files(running_broker)


def test_without_a_secret_it_is_made_later(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    running_broker.create_topic("rides", respool_tags="tag", **SMALL)
    fill(running_broker)
    running_broker.disk.faults.fail("replace", path="tag-index-secret", error=DiskFull)
    index(running_broker)
    assert "no tag indexes are made now" in caplog.text
    assert files(running_broker) == []
    index(running_broker)
    assert files(running_broker)


def test_a_damaged_segment_has_no_index_and_its_partition_stays_online(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    running_broker.create_topic("rides", respool_tags="tag", **SMALL)
    fill(running_broker)
    running_broker.disk.faults.fail("read", path="rides-0/*.log", times=None)
    index(running_broker)
    index(running_broker)
    assert caplog.text.count("no tag index until the broker is restarted") == 1
    assert running_broker.broker.partitions.find("rides", 0).is_online
