"""Each change that a client asked for and got is one line, with the client's name and address; a refusal is none."""

import logging
from typing import Any

import pytest

from broker.group_client import commit, start_with_groups
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import encode_request
from respool.broker.admin_log import listed, quoted
from respool.broker.dispatch import handle
from respool.wire.api_table import Api
from respool.wire.codec import decode_request

BY = "[client 'tester' at unknown]"
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND = 0, 1, 2


@pytest.fixture
def broker(start_broker: StartBroker, caplog: pytest.LogCaptureFixture) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=2)
    caplog.set_level(logging.INFO, logger="respool.broker.admin_log")
    caplog.clear()
    return broker


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "respool.broker.admin_log"]


def create(broker: RunningBroker, name: str, *, validate_only: bool = False) -> None:
    topic = {
        "name": name,
        "num_partitions": 3,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "1000"}],
    }
    broker.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=1000, validate_only=validate_only)


def grow(broker: RunningBroker, name: str, count: int) -> None:
    topic = {"name": name, "count": count, "assignments": None}
    broker.ask(Api.CREATE_PARTITIONS, 3, topics=[topic], timeout=1000, validate_only=False)


def delete(broker: RunningBroker, name: str) -> None:
    topic = {"name": name, "topic_id": None}
    broker.ask(Api.DELETE_TOPICS, 6, topics=[topic], timeout=1000)


def alter(broker: RunningBroker, kind: int, name: str, *configs: tuple[str, int, Any]) -> None:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in configs
        ],
    }
    broker.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)


def test_a_topic_that_comes_grows_and_goes_is_logged(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    create(broker, "fares")
    grow(broker, "fares", 5)
    delete(broker, "fares")
    assert lines(caplog) == [
        f"created topic 'fares': partitions 3, replication factor 1, retention.ms='1000' {BY}",
        f"grew topic 'fares': partitions 5 {BY}",
        f"deleted topic 'fares' {BY}",
    ]


def test_what_is_refused_or_only_validated_is_not_logged(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    create(broker, "rides")
    create(broker, "fares", validate_only=True)
    grow(broker, "rides", 1)
    delete(broker, "fares")
    alter(broker, TOPIC, "rides", ("retention.ms", SET, "soon"))
    broker.ask(Api.DELETE_GROUPS, 2, groups_names=["nobody"])
    assert lines(caplog) == []


def test_auto_creation_is_logged_once(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        broker.ask(
            Api.METADATA,
            9,
            topics=[{"name": "fares"}],
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
    (line,) = lines(caplog)
    assert line.startswith("created topic 'fares'")
    assert "auto_create_topics" in line


def test_changes_of_configs_are_logged_as_they_were_asked_for(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    alter(broker, TOPIC, "rides", ("retention.ms", SET, "5"), ("segment.ms", DELETE, None))
    alter(broker, TOPIC, "rides", ("cleanup.policy", APPEND, "compact"))
    assert lines(caplog) == [
        f"changed configs of topic 'rides': retention.ms='5', segment.ms unset {BY}",
        f"changed configs of topic 'rides': cleanup.policy+='compact' {BY}",
    ]


def test_a_flush_after_the_acknowledgement_is_said_where_it_is_logged(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    alter(broker, TOPIC, "rides", ("flush.ms", SET, "1000"))
    alter(broker, TOPIC, "rides", ("flush.messages", SET, "1"), ("flush.ms", SET, "1000"))
    alter(broker, TOPIC, "rides", ("flush.ms", DELETE, None))
    delayed, at_once, unset = lines(caplog)
    assert "flush.ms='1000'; with flush.ms acks=all is answered from the page cache" in delayed
    assert "page cache" not in at_once + unset


def test_deleted_records_are_logged_with_the_new_log_start(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.produce("rides", values=(b"a", b"b"))
    wanted = [{"partition_index": 0, "offset": 2}, {"partition_index": 1, "offset": 9}]
    topic = {"name": "rides", "partitions": wanted}
    broker.ask(Api.DELETE_RECORDS, 2, topics=[topic], timeout=1000)
    assert lines(caplog) == [f"deleted records of topic 'rides': partition 0 before 2 {BY}"]


def test_a_group_that_is_set_and_deleted_is_logged(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    commit(broker, "drivers", ("rides", 0, 1), ("rides", 1, 2))
    # The second within a minute is not: it may be a consumer that has no subscription.
    commit(broker, "drivers", ("rides", 0, 2))
    topics = [{"name": "rides", "partitions": [{"partition_index": 1}]}]
    broker.ask(Api.OFFSET_DELETE, 0, group_id="drivers", topics=topics)
    broker.ask(Api.DELETE_GROUPS, 2, groups_names=["drivers"])
    assert lines(caplog) == [
        f"set offsets of group 'drivers': rides-0=1, rides-1=2 {BY}",
        f"deleted offsets of group 'drivers': rides-1 {BY}",
        f"deleted group 'drivers' {BY}",
    ]


def test_the_address_is_that_of_the_connection(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def ask() -> None:
        topics = [{"name": "rides", "topic_id": None}]
        request = decode_request(encode_request(Api.DELETE_TOPICS, 6, topics=topics, timeout=1000))
        request.client_host = "/10.0.0.7"
        await handle(request, broker.broker)  # type: ignore[misc]

    broker.run(ask())
    assert lines(caplog) == ["deleted topic 'rides' [client 'tester' at 10.0.0.7]"]


def test_what_a_client_chooses_cannot_forge_or_flood_a_line() -> None:
    assert quoted("a\nINFO: all is well") == r"'a\nINFO: all is well'"
    assert len(quoted("x" * 10_000)) < 300
    assert listed(str(number) for number in range(12)).endswith("9 and 2 more")
