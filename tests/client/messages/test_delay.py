"""Delays in `respool.Producer.send`."""

from datetime import UTC, datetime, timedelta

import pytest

import respool
from respool.client.messages.delay import Delay, delay_headers
from respool.client.messages.errors import BadArgument
from respool.testing import Broker
from support.confluent_client import ConfluentClient

NOON = datetime(2026, 11, 12, 12, tzinfo=UTC)


@pytest.mark.parametrize("delay", [timedelta(minutes=30), 1_800_000, "30m", "1800s"])
def test_delay_becomes_a_header(delay: Delay) -> None:
    assert delay_headers(delay, None, "order-7") == [
        ("respool-delay", b"1800000"),
        ("respool-schedule-id", b"order-7"),
    ]


def test_time_becomes_a_header() -> None:
    assert delay_headers(None, NOON, None) == [("respool-deliver-at", b"1794484800000")]
    assert delay_headers(None, None, None) == []


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("1h", NOON, None), "not both"),
        (("soon", None, None), "'soon'"),
        ((-1, None, None), "not -1"),
        ((True, None, None), "not True"),
        ((timedelta(seconds=-1), None, None), "a delay is"),
        ((None, NOON.replace(tzinfo=None), None), "no time zone"),
        ((None, None, "a"), "give delay="),
        (("1h", None, ""), "is empty"),
    ],
)
def test_malformed_delay_is_refused(arguments: tuple[object, object, object], reason: str) -> None:
    with pytest.raises(BadArgument, match=reason):
        delay_headers(*arguments)  # type: ignore[arg-type]


def test_delayed_messages_of_both_producers_arrive_in_time() -> None:
    with Broker() as broker:
        broker.create_topic("reminders", respool_delay="true")
        with respool.Producer(broker.bootstrap) as producer:
            producer.send("reminders", "now", headers={"tag": "a"})
            producer.send("reminders", "old", delay="1h", schedule_id="x")
            producer.send_and_wait("reminders", "new", delay="2h", schedule_id="x")
            producer.send("reminders", "soon", delay=timedelta(seconds=1), headers={"tag": "b"})
        broker.clock.advance(hours=2)
        found = ConfluentClient().read(broker.bootstrap, [("reminders", 0)])[("reminders", 0)]
        assert [one.value for one in found] == [b"now", b"soon", b"new"]
        assert found[1].headers[0] == ("tag", b"b")
