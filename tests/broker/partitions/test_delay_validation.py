"""Produced batches with malformed delay headers are refused as a whole, with the records at fault."""

from typing import Any

import pytest

from broker.deliveries.delay_broker import DelayBroker, delayed, record
from broker.running_broker import RunningBroker
from respool.broker.partitions import delay_validation
from respool.records.batch import Codec
from respool.records.build import NewRecord

INVALID_RECORD = 87
POLICY_VIOLATION = 44
MESSAGE_TOO_LARGE = 10


@pytest.fixture
def delays(running_broker: RunningBroker) -> DelayBroker:
    return DelayBroker(running_broker)


def refused(delays: DelayBroker, *records: NewRecord, **how: Any) -> dict[int, str]:
    answer = delays.answer_to(*records, **how)
    assert (answer.error_code, answer.base_offset) == (INVALID_RECORD, -1)
    assert delays.partition.log.log_end == 0
    return {one.batch_index: one.batch_index_error_message for one in answer.record_errors}


@pytest.mark.parametrize("codec", Codec)
def test_records_at_fault_are_named_and_nothing_is_appended(
    delays: DelayBroker, codec: Codec
) -> None:
    found = refused(
        delays,
        record(b"fine"),
        delayed(b"bad", b"soon"),
        delayed(b"fine", b"1s"),
        record(b"bad", ("respool-delay-level", b"19")),
        codec=codec,
    )
    assert found == {
        1: "respool-delay: 'soon' is not a length of time, such as '90s', '3h' or '7 days'",
        3: "respool-delay-level '19': the topic has levels 1 to 18",
    }


@pytest.mark.parametrize(
    "headers",
    [
        (("respool-deliver-at", b"yesterday"),),
        (("respool-delay", b"11 years"),),
        (("respool-delay", b"4000d"),),
        (("respool-delay", b"1s"), ("respool-delay-level", b"1")),
        (("respool-delay", b"1s"), ("respool-delay", b"1s")),
        (("respool-schedule", b"0 0 31 2 *"),),
        (("respool-schedule", b"@every 10ms"),),
        (("respool-schedule", b"0 0 * * *"), ("respool-time-zone", b"Mars/Olympus")),
        (("respool-schedule", b"@every 1h"), ("respool-until", b"1600000000000")),
        (("respool-cancel", b""),),
        (("respool-cancel", None),),
        (("respool-schedule-id", b"a"),),
        (("respool-delivered-from", b"1"),),
        (("respool-carried-from", b"1"),),
    ],
)
def test_malformed_delay_is_refused(
    delays: DelayBroker, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    assert list(refused(delays, record(b"a", *headers))) == [0]


def test_large_batches_are_read_off_the_event_loop(delays: DelayBroker) -> None:
    many = [record(b"x" * 100, ("tag", b"a")) for _ in range(1_000)]
    assert refused(delays, *many, delayed(b"bad", b"soon")).keys() == {1_000}
    packed = [record(b"x" * 100_000), delayed(b"bad", b"soon")]
    assert refused(delays, *packed, codec=Codec.ZSTD).keys() == {1}


def test_batch_without_delay_headers_is_not_parsed(
    delays: DelayBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: object, **__: object) -> None:
        raise AssertionError("records were parsed")

    monkeypatch.setattr(delay_validation, "check_produced_records", parse)
    assert delays.send(*(record(b"x", ("tag", b"a")) for _ in range(100))) == 0


def test_older_versions_get_the_error_without_the_records(delays: DelayBroker) -> None:
    answer = delays.answer_to(delayed(b"bad", b"soon"), version=7)
    assert answer.error_code == INVALID_RECORD


def test_record_without_a_timestamp_is_refused_with_create_time(
    running_broker: RunningBroker,
) -> None:
    delays = DelayBroker(running_broker, settings={"message_timestamp_type": "CreateTime"})
    assert list(refused(delays, delayed(b"a", b"1s"))) == [0]


def test_more_than_may_wait_are_refused(running_broker: RunningBroker) -> None:
    delays = DelayBroker(running_broker, settings={"respool_delay_pending_max": "3"})
    delays.send(delayed(b"a", b"10s"), delayed(b"b", b"10s"))
    delays.deliver()
    answer = delays.answer_to(delayed(b"c", b"10s"), delayed(b"d", b"10s"))
    assert answer.error_code == POLICY_VIOLATION
    assert "respool.delay.pending.max = 3" in answer.error_message
    delays.send(delayed(b"c", b"10s"))
    delays.send(record(b"visible"))
    delays.deliver(after_ms=10_000)
    delays.send(delayed(b"d", b"10s"), delayed(b"e", b"10s"), delayed(b"f", b"10s"))


def test_topic_of_its_own_levels_has_those(running_broker: RunningBroker) -> None:
    delays = DelayBroker(running_broker, settings={"respool_delay_levels": "1s, 1h30m"})
    delays.send(record(b"a", ("respool-delay-level", b"2")))
    delays.deliver(after_ms=5_400_000)
    assert delays.values() == [b"a"]
