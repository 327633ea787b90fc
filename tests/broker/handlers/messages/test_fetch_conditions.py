"""Fetches with a condition, from request bytes to reply bytes: what cannot match does not leave the broker."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import Producer, start_with_transactions
from broker.views.reading import headers_in
from broker.views.view_broker import add_view, append, produce
from broker.wire_client import encode_request
from respool.broker.dispatch import handle
from respool.broker.fetch import partition_read
from respool.model.ids import Offset
from respool.records.build import NewRecord, build_batch
from respool.records.markers import MARKER_BYTES
from respool.wire.api_table import Api
from respool.wire.codec import decode_request
from respool.wire.fetch_condition import CONDITION_FETCH_VERSION
from respool.wire.fetch_reply import FetchedPart, read_fetch_reply

READ_COMMITTED = 1
OUT_OF_RANGE = 1
PAID = "tag = 'paid'"
VIEW = "rides.v.some"
SKIPPED = "respool_view_skipped_bytes_total"


@pytest.fixture
def broker(start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch) -> RunningBroker:
    """A batch for each record: new, paid, new, new, paid, new; indexed, and no longer in memory."""
    monkeypatch.setattr(partition_read, "NEAR_END_BYTES", 0)
    broker = start_with_transactions(start_broker)
    # A topic is indexed by what its views ask for.
    add_view(broker, VIEW, "tag in ('paid', 'new') and region != 'x'")
    for tag in ("new", "paid", "new", "new", "paid", "new"):
        produce(broker, tag)
    index(broker)
    return broker


def index(broker: RunningBroker) -> None:
    """Make the tag index of what there is."""
    broker.run(broker.broker.housekeeping._tag_indexer.index_all())
    broker.forget_tails()


def fields_of(
    broker: RunningBroker,
    condition: str = PAID,
    *,
    offset: int = 0,
    topic: str = "rides",
    host: str = "",
    **fields: Any,
) -> dict[str, Any]:
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    known = broker.broker.image.readable(topic)
    assert known is not None
    asked = {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "topics": [{"topic_id": known.id, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
        "reader_host": host,
        "condition": condition,
    }
    return asked | fields


def fetch(
    broker: RunningBroker,
    condition: str = PAID,
    *,
    version: int = CONDITION_FETCH_VERSION,
    **fields: Any,
) -> FetchedPart:
    reply = broker.frame(Api.FETCH, version, **fields_of(broker, condition, **fields))
    (part,) = read_fetch_reply(memoryview(reply), version).parts
    return part


def sent(part: FetchedPart) -> list[tuple[int, int, bool]]:
    assert part.error_code == 0
    return headers_in(bytes(part.records))


def skipped_bytes(broker: RunningBroker) -> int:
    return int(broker.metrics.value(SKIPPED))


def test_batches_that_cannot_match_do_not_leave_the_broker(broker: RunningBroker) -> None:
    whole = len(fetch(broker, "").records)
    assert skipped_bytes(broker) == 0
    part = fetch(broker)
    # The batches at 1 and 4 as they are stored, and a marker that moves the reader to the end.
    assert sent(part) == [(1, 1, False), (4, 4, False), (5, 5, True)]
    assert (part.high_watermark, part.aborted) == (6, ())
    assert skipped_bytes(broker) == whole - (len(part.records) - MARKER_BYTES)
    paid = len(part.records) // 3
    assert part.records[:paid] == fetch(broker, "", offset=1).records[:paid]
    assert sent(fetch(broker, offset=4)) == [(4, 4, False), (5, 5, True)]
    assert sent(fetch(broker, offset=5)) == [(5, 5, True)]
    assert sent(fetch(broker, "tag = 'other'")) == [(5, 5, True)]
    assert sent(fetch(broker, "tag in ('new', 'paid')")) == [(n, n, False) for n in range(6)]


def test_what_is_not_indexed_is_sent(broker: RunningBroker) -> None:
    produce(broker, "new")
    produce(broker, "new")
    broker.forget_tails()
    offsets = [first for first, _, _ in sent(fetch(broker))]
    assert offsets == [1, 4, 6, 7]
    # Other headers have no index, and such clauses are of no use to one.
    for condition in ("region = 'eu'", "key = 'k'", "tag != 'paid'", "absent(tag)"):
        assert len(sent(fetch(broker, condition))) == 8
    assert skipped_bytes(broker) > 0


@pytest.mark.parametrize(
    "condition",
    [
        "tag = paid",
        "no such language",
        "tag = '" + "a" * 4096 + "'",
        "tag = 'a' and absent(tag)",
        "\0",
    ],
)
def test_what_is_no_condition_is_as_good_as_none(broker: RunningBroker, condition: str) -> None:
    assert len(sent(fetch(broker, condition))) == 6
    assert skipped_bytes(broker) == 0


@given(condition=st.text(max_size=40) | st.text("tagin=() '\"xpad\\,", max_size=40))
@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_condition_is_answered(broker: RunningBroker, condition: str) -> None:
    assert sent(fetch(broker, condition.encode(errors="ignore").decode()))


def test_the_limits_of_a_reply_are_those_of_other_readers(broker: RunningBroker) -> None:
    assert sent(fetch(broker, max_bytes=1)) == [(1, 1, False)]
    assert sent(fetch(broker, max_bytes=1, offset=2)) == [(4, 4, False)]


def test_offsets_outside_of_the_log_are_out_of_range(broker: RunningBroker) -> None:
    assert fetch(broker, offset=6).error_code == 0
    assert fetch(broker, offset=7).error_code == OUT_OF_RANGE
    for partition in broker.broker.partitions:
        if partition.name.topic == "rides" and partition.log.log_end:
            partition.log.raise_log_start(Offset(3))
    assert fetch(broker, offset=2).error_code == OUT_OF_RANGE
    assert sent(fetch(broker, offset=3)) == [(4, 4, False), (5, 5, True)]


def test_little_at_the_logs_end_is_sent_at_once(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From memory, without a search in another thread: the newest batches are not indexed yet."""
    monkeypatch.setattr(partition_read, "NEAR_END_BYTES", 64 * 1024)
    produce(broker, "new")
    assert sent(fetch(broker, offset=6)) == [(6, 6, False)]


def test_a_fetch_waits_for_what_follows_and_not_for_a_match(broker: RunningBroker) -> None:
    part = fetch(broker, offset=5, max_wait=60_000)
    assert sent(part) == [(5, 5, True)]
    assert bytes(fetch(broker, offset=6, max_wait=1).records) == b""


def test_a_reader_on_this_machine_is_lent_what_may_match(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = broker.local_reader.host
    new, paid = (len(fetch(broker, "", offset=n, max_bytes=1).records) for n in (0, 1))
    monkeypatch.setattr(broker.local_reader, "local_read_bytes_min", paid)
    part = fetch(broker, host=host)
    assert part.file_range is not None
    assert not part.records
    lent = bytes(broker.run(broker.local_reader.read(part.file_range)))
    assert headers_in(lent) == [(1, 1, False)]
    assert skipped_bytes(broker) == new
    # Too little to open a file for it: several stretches are sent.
    monkeypatch.setattr(broker.local_reader, "local_read_bytes_min", paid + 1)
    part = fetch(broker, host=host)
    assert part.file_range is None
    assert sent(part) == [(1, 1, False), (4, 4, False), (5, 5, True)]


def test_a_readers_condition_narrows_what_a_view_shows(broker: RunningBroker) -> None:
    assert len(sent(fetch(broker, "", topic=VIEW))) == 6
    assert sent(fetch(broker, topic=VIEW)) == [(1, 1, False), (4, 4, False), (5, 5, True)]
    # It shows nothing that the view does not: a deletion without tags, for one.
    tombstone = NewRecord(key=b"k", value=None, timestamp_ms=broker.clock.now_ms())
    append(broker, build_batch([tombstone]))
    hidden = fetch(broker, "key = 'k' include tombstones", topic=VIEW)
    assert sent(hidden) == [(6, 6, True)]
    # What no record can match is left to the reader.
    assert len(sent(fetch(broker, "region = 'x'", topic=VIEW))) == 7


def test_other_versions_and_mirrors_get_everything(broker: RunningBroker) -> None:
    asked = {
        "replica_id": -1, "max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
        "topics": [
            {
                "topic": "rides",
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}],
            }
        ],
    }  # fmt: skip
    (topic,) = broker.ask(Api.FETCH, 12, **asked).responses
    assert len(headers_in(topic.partitions[0].records)) == 6


def test_aborted_batches_are_left_out_with_the_marker_of_their_abort(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tagged(value: bytes, timestamp_ms: int) -> NewRecord:
        return NewRecord(value=value, timestamp_ms=timestamp_ms, headers=(("tag", value),))

    monkeypatch.setattr("broker.transaction_client.NewRecord", tagged)
    producer = Producer(broker)
    producer.write("rides", 0, b"paid")
    producer.abort()
    producer.write("rides", 0, b"paid")
    producer.commit()
    index(broker)
    part = fetch(broker, offset=6, isolation_level=READ_COMMITTED)
    # 6 was aborted by the marker at 7; 8 was committed by that at 9.
    assert sent(part) == [(8, 8, False), (9, 9, True)]
    assert part.aborted == ()
    part = fetch(broker, offset=6)
    assert sent(part) == [(6, 6, False), (8, 8, False), (9, 9, True)]


def test_a_reader_does_not_pass_an_open_transaction(broker: RunningBroker) -> None:
    producer = Producer(broker)
    producer.write("rides", 0, b"open")
    append(broker, build_batch([NewRecord(value=b"later", timestamp_ms=broker.clock.now_ms())]))
    index(broker)
    part = fetch(broker, "tag = 'other'", isolation_level=READ_COMMITTED)
    assert sent(part) == [(5, 5, True)]
    assert part.last_stable_offset == 6
    assert sent(fetch(broker, "tag = 'other'")) == [(7, 7, True)]


@pytest.mark.parametrize("is_in_memory", [False, True])
def test_a_reader_at_the_end_waits_for_records(broker: RunningBroker, is_in_memory: bool) -> None:
    """Its fetch went to another thread, and was answered from there at once: the reader asked again and again."""
    if is_in_memory:
        produce(broker, "new")
    end = broker.broker.partitions.find("rides", 0).log.log_end
    fields = fields_of(broker, offset=end, max_wait=600_000)
    request = decode_request(encode_request(Api.FETCH, CONDITION_FETCH_VERSION, **fields))

    async def begin() -> None:
        fetching = handle(request, broker.broker)
        assert asyncio.iscoroutine(fetching)
        fetching.close()

    broker.run(begin())
    assert request.waits_for_others
