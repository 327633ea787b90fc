"""What is counted of requests and replies, and when it is told."""

import asyncio
import struct

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import encode_request
from respool.server.client_connection import ClientConnection
from respool.server.listener import Listener
from respool.server.traffic import SECONDS_BOUNDS, STAGE_BOUNDS, RequestTimes, Traffic
from respool.sim.runtime.simulated_metrics import SimMetrics
from respool.wire.api_table import API_TABLE, Api
from respool.wire.codec import Request
from respool.wire.reply_errors import with_errors
from server.fake_transport import FakeTransport


def request(api: Api, *, size: int = 100) -> Request:
    return Request(
        api=API_TABLE[api], version=1, correlation_id=1, client_id=None, body=None, size=size
    )


def took(seconds: float) -> RequestTimes:
    return RequestTimes(0, seconds, 0)


def test_each_api_is_counted_by_itself_and_told_when_it_is_asked_for() -> None:
    metrics = SimMetrics()
    traffic = Traffic(metrics)
    for size in (100, 50):
        traffic.on_request(request(Api.PRODUCE, size=size))
    traffic.on_request(request(Api.FETCH))
    traffic.on_reply(API_TABLE[Api.PRODUCE], [b"12345"], took(0.002))
    traffic.on_reply(API_TABLE[Api.FETCH], [b"12", b"3456"], took(0.5))
    assert metrics.value("respool_requests_total", api="Produce") == 0

    traffic.report()
    traffic.report()

    assert metrics.value("respool_requests_total", api="Produce") == 2
    assert metrics.value("respool_request_bytes_total", api="Produce") == 150
    assert metrics.value("respool_reply_bytes_total", api="Produce") == 5
    assert metrics.value("respool_reply_bytes_total", api="Fetch") == 6
    assert metrics.counted("respool_request_seconds", api="Produce") == 1


def test_times_go_into_the_bucket_they_are_at_most() -> None:
    metrics = SimMetrics()
    traffic = Traffic(metrics)
    times = (0.0, 0.0001, 0.00011, 10.0, 11.0)
    for seconds in times:
        traffic.on_request(request(Api.FETCH))
        traffic.on_reply(API_TABLE[Api.FETCH], [b"x"], took(seconds))
    traffic.report()
    found = metrics.histogram("respool_request_seconds", "?", buckets=SECONDS_BOUNDS, api="Fetch")
    assert found.counts == [2, 1, *[0] * (len(SECONDS_BOUNDS) - 3), 1, 1]
    assert found.total == sum(times)


def test_errors_are_counted_by_name_and_a_request_without_a_reply_has_none() -> None:
    metrics = SimMetrics()
    traffic = Traffic(metrics)
    traffic.on_request(request(Api.PRODUCE))
    traffic.on_reply(API_TABLE[Api.PRODUCE], [with_errors(b"x", [87, 87, 10])], took(0.1))
    traffic.on_request(request(Api.PRODUCE))
    traffic.on_reply(API_TABLE[Api.PRODUCE], (), took(0.1))
    traffic.report()
    errors = "respool_errors_total"
    assert metrics.value(errors, api="Produce", error="INVALID_RECORD") == 2
    assert metrics.value(errors, api="Produce", error="MESSAGE_TOO_LARGE") == 1
    assert metrics.counted("respool_request_seconds", api="Produce") == 2


def test_each_stage_of_a_request_has_its_own_histogram() -> None:
    metrics = SimMetrics()
    traffic = Traffic(metrics)
    for times in ((0.0, 0.001, 7.0), (0.002, 0.0, 0.2)):
        traffic.on_request(request(Api.FETCH))
        traffic.on_reply(API_TABLE[Api.FETCH], [b"x"], RequestTimes(*times))
    traffic.on_sent(API_TABLE[Api.FETCH], 0.5)
    traffic.report()
    found = {
        stage: metrics.histogram(
            "respool_request_stage_seconds", "?", buckets=STAGE_BOUNDS, api="Fetch", stage=stage
        )
        for stage in ("queue", "local", "remote", "send")
    }
    assert {stage: one.total for stage, one in found.items()} == {
        "queue": 0.002,
        "local": 0.001,
        "remote": 7.2,
        "send": 0.5,
    }
    assert found["queue"].counts == [1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert found["local"].counts == [2, 0, 0, 0, 0, 0, 0, 0, 0]
    assert found["remote"].counts == [0, 0, 0, 0, 0, 1, 0, 0, 1]
    assert found["send"].counts == [0, 0, 0, 0, 0, 1, 0, 0, 0]
    # All of it is in the request's whole time, but what is before and after.
    assert metrics.histogram(
        "respool_request_seconds", "?", buckets=SECONDS_BOUNDS, api="Fetch"
    ).total == pytest.approx(7.201)


def test_a_connection_tells_of_replies_made_at_once_and_by_tasks(
    running_broker: RunningBroker,
) -> None:
    metrics = running_broker.broker.world.metrics
    assert isinstance(metrics, SimMetrics)

    async def story() -> None:
        listener = Listener(running_broker.broker)
        transport = FakeTransport(room=1 << 20)
        connection = ClientConnection(broker=running_broker.broker, owner=listener)
        transport.attach(connection)
        frames = [
            encode_request(Api.API_VERSIONS, 0),
            encode_request(
                Api.METADATA,
                12,
                topics=[{"topic_id": None, "name": "rides"}],
                allow_auto_topic_creation=True,
                include_topic_authorized_operations=False,
            ),
        ]
        for frame in frames:
            data = struct.pack(">i", len(frame)) + frame
            connection.get_buffer(-1)[: len(data)] = data
            connection.buffer_updated(len(data))
            while connection.is_busy:
                await asyncio.sleep(0)
        listener.sweep(0)
        transport.abort()
        await asyncio.sleep(0)
        sent = [
            metrics.value("respool_reply_bytes_total", api=api)
            for api in ("ApiVersions", "Metadata")
        ]
        assert sum(sent) == len(transport.sent)

    running_broker.run(story())
    assert metrics.counted("respool_request_seconds", api="ApiVersions") == 1
    assert metrics.counted("respool_request_seconds", api="Metadata") == 1
