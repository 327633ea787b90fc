"""Many requests in flight for asyncio: in order, failing together, and connecting again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from threading import Event
from threading import enumerate as threads
from typing import Any

import pytest

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import (
    BrokerUnreachable,
    ClientClosed,
    VersionUnsupported,
)
from respool.client.kafka.pipelined import PipelinedRequests
from respool.client.kafka.versions import VERSIONS
from respool.wire.api_table import Api
from respool.wire.codec import Request
from support.scripted_broker import HANG_UP, ScriptedBroker

NAMES = {"client_software_name": "respool", "client_software_version": "0.1.0"}
FETCH_CHANNEL = 1


@asynccontextmanager
async def pipelined(broker: ScriptedBroker) -> AsyncIterator[PipelinedRequests]:
    cluster = Cluster(broker.address, request_timeout_ms=5_000)
    await asyncio.to_thread(cluster.refresh_brokers)
    requests = PipelinedRequests(cluster)
    try:
        yield requests
    finally:
        await requests.close()
    assert not [one.name for one in threads() if one.name.startswith("kafka-")]


def fetch_fields(broker: ScriptedBroker, offset: int = 0) -> dict[str, Any]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "partition_max_bytes": 1_000,
    }
    return {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1_000,
        "topics": [{"topic_id": broker.topic_id, "partitions": [partition]}],
        "forgotten_topics_data": [],
    }


def played(story: Callable[[ScriptedBroker, PipelinedRequests], Any]) -> ScriptedBroker:
    async def play(broker: ScriptedBroker) -> None:
        async with asyncio.timeout(20), pipelined(broker) as requests:
            await story(broker, requests)

    with ScriptedBroker() as broker:
        broker.append(b"one")
        broker.append(b"two")
        asyncio.run(play(broker))
        return broker


def test_requests_are_sent_before_earlier_replies_came_and_answered_in_order() -> None:
    async def story(broker: ScriptedBroker, requests: PipelinedRequests) -> None:
        replies = await asyncio.gather(
            *(
                requests.request(1, Api.FETCH, fetch_fields(broker, offset % 2))
                for offset in range(20)
            )
        )
        assert len(replies) == 20
        assert [offset for offset, *_ in [one[1:] for one in broker.fetches]] == [0, 1] * 10

    assert played(story).connections == 2, "one for metadata, one for the requests"


def test_a_waiting_fetch_does_not_delay_another_channel() -> None:
    async def story(broker: ScriptedBroker, requests: PipelinedRequests) -> None:
        release = Event()

        def waiting(request: Request) -> bytes:
            assert release.wait(10)
            return broker.good(request)

        broker.script.append(waiting)
        fetch = asyncio.ensure_future(
            requests.request(1, Api.FETCH, fetch_fields(broker), channel=FETCH_CHANNEL)
        )
        reply = await requests.request(1, Api.API_VERSIONS, NAMES)
        assert reply.api_keys
        assert not fetch.done()
        release.set()
        await fetch

    played(story)


def test_a_lost_connection_fails_all_requests_in_flight_and_the_next_one_connects_again() -> None:
    async def story(broker: ScriptedBroker, requests: PipelinedRequests) -> None:
        broker.script.append(lambda _: HANG_UP)
        failed = await asyncio.gather(
            *(requests.request(1, Api.FETCH, fetch_fields(broker)) for _ in range(3)),
            return_exceptions=True,
        )
        assert [type(one).__mro__[1] for one in failed] == [BrokerUnreachable] * 3
        await requests.request(1, Api.FETCH, fetch_fields(broker))

    played(story)


def test_a_connection_that_the_broker_closed_while_it_was_idle_is_replaced() -> None:
    async def story(broker: ScriptedBroker, requests: PipelinedRequests) -> None:
        for _ in range(3):
            await requests.request(1, Api.FETCH, fetch_fields(broker))
            broker.hang_up()
            await asyncio.sleep(0)

    played(story)


def test_a_version_the_broker_does_not_have_fails_that_request_only() -> None:
    async def story(broker: ScriptedBroker, requests: PipelinedRequests) -> None:
        oldest, newest = broker.versions[Api.FETCH]
        broker.versions[Api.FETCH] = (oldest, VERSIONS[Api.FETCH].oldest - 1)
        kept = asyncio.ensure_future(requests.request(1, Api.API_VERSIONS, NAMES))
        with pytest.raises(VersionUnsupported):
            await requests.request(1, Api.FETCH, fetch_fields(broker))
        await kept
        broker.versions[Api.FETCH] = (oldest, newest)

    played(story)


def test_fields_that_cannot_be_encoded_fail_that_request_only() -> None:
    async def story(broker: ScriptedBroker, requests: PipelinedRequests) -> None:
        with pytest.raises(TypeError):
            await requests.request(1, Api.FETCH, {"nonsense": 1})
        await requests.request(1, Api.FETCH, fetch_fields(broker))

    assert played(story).connections == 2


def test_a_cancelled_request_does_not_shift_the_replies_of_others() -> None:
    async def story(broker: ScriptedBroker, requests: PipelinedRequests) -> None:
        release = Event()

        def waiting(request: Request) -> bytes:
            assert release.wait(10)
            return broker.good(request)

        broker.script.append(waiting)
        first = asyncio.ensure_future(requests.request(1, Api.FETCH, fetch_fields(broker, 1)))
        second = asyncio.ensure_future(requests.request(1, Api.API_VERSIONS, NAMES))
        await asyncio.sleep(0)
        first.cancel()
        release.set()
        assert (await second).api_keys

    played(story)


def test_closing_fails_what_is_in_flight() -> None:
    async def story(broker: ScriptedBroker, requests: PipelinedRequests) -> None:
        release = Event()

        def waiting(request: Request) -> bytes:
            release.wait(10)
            return broker.good(request)

        broker.script.append(waiting)
        fetch = asyncio.ensure_future(
            requests.request(1, Api.FETCH, fetch_fields(broker), channel=FETCH_CHANNEL)
        )
        await requests.request(1, Api.API_VERSIONS, NAMES)
        await requests.close()
        release.set()
        with pytest.raises(ClientClosed):
            await fetch

    played(story)


def test_nobody_listens() -> None:
    async def story(broker: ScriptedBroker, requests: PipelinedRequests) -> None:
        requests._cluster._metadata.brokers = {1: ("127.0.0.1", 1)}
        with pytest.raises(BrokerUnreachable, match="refused"):
            await requests.request(1, Api.API_VERSIONS, NAMES)
        with pytest.raises(BrokerUnreachable, match="broker 7"):
            await requests.request(7, Api.API_VERSIONS, NAMES)

    played(story)
