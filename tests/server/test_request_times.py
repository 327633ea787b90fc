"""Where a request's time goes, with a stopwatch that the test turns."""

import pytest

from broker.running_broker import RunningBroker
from respool.server import client_connection, request_arrivals, written_replies
from server.test_client_connection import Client, api_versions, fetch, numbered, play, produce, turn


class Stopwatch:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(client_connection, "perf_counter", lambda: self.now)
        monkeypatch.setattr(request_arrivals, "perf_counter", lambda: self.now)
        monkeypatch.setattr(written_replies, "perf_counter", lambda: self.now)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    return Stopwatch(monkeypatch)


def test_a_produce_waits_remotely_for_its_commit(
    running_broker: RunningBroker, watch: Stopwatch
) -> None:
    async def story(client: Client) -> None:
        client.broker.offload.hold()
        client.send(produce())
        await turn()
        watch.now += 3
        client.broker.offload.release()
        await turn()
        assert client.door.times == [("Produce", (0, 0, 3))]
        assert client.door.sent == [("Produce", 0)]

    play(running_broker, story)


def test_a_request_behind_another_is_queued_from_when_it_came(
    running_broker: RunningBroker, watch: Stopwatch
) -> None:
    async def story(client: Client) -> None:
        client.send(numbered(fetch(), 1))
        await turn()
        watch.now += 2
        # Both are whole now, and the fetch before them waits for data.
        client.send(numbered(api_versions(), 2), numbered(api_versions(), 3))
        watch.now += 5
        client.send(numbered(api_versions(), 4))
        watch.now += 1
        broker = client.broker.broker
        broker.partitions.find("rides", 0).wake_readers()
        await turn()
        assert client.replies() == [1, 2, 3, 4]
        assert client.door.times == [
            ("Fetch", (0, 0, 8)),
            ("ApiVersions", (6, 0, 0)),
            ("ApiVersions", (6, 0, 0)),
            ("ApiVersions", (1, 0, 0)),
        ]
        watch.now += 9
        client.send(numbered(api_versions(), 5))
        assert client.door.times[-1] == ("ApiVersions", (0, 0, 0))
        assert not client.connection._arrivals._arrivals

    play(running_broker, story)


def test_a_request_that_must_not_overtake_replies_is_queued_meanwhile(
    running_broker: RunningBroker, watch: Stopwatch
) -> None:
    async def story(client: Client) -> None:
        client.broker.offload.hold()
        client.send(numbered(produce(), 1), numbered(api_versions(), 2))
        await turn()
        watch.now += 4
        client.broker.offload.release()
        await turn()
        assert client.door.times == [("Produce", (0, 0, 4)), ("ApiVersions", (4, 0, 0))]

    play(running_broker, story)


def test_a_reply_is_sent_when_the_client_has_taken_it(
    running_broker: RunningBroker, watch: Stopwatch
) -> None:
    async def story(client: Client) -> None:
        client.send(api_versions())
        assert client.door.sent == []
        watch.now += 7
        client.transport.make_room(1 << 20)
        assert client.door.sent == [("ApiVersions", 7)]
        assert client.connection._written._written == []

    play(running_broker, story, room=10)


def test_requests_without_replies_leave_nothing_behind(
    running_broker: RunningBroker, watch: Stopwatch
) -> None:
    async def story(client: Client) -> None:
        client.send(*(produce(acks=0) for _ in range(5)))
        await turn()
        assert [name for name, _ in client.door.times] == 5 * ["Produce"]
        assert client.door.sent == []
        assert client.connection._replies.taken == []

    play(running_broker, story)
