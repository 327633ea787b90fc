"""ElectLeaders, in every version, on a node that leads everything it has."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.ELECT_LEADERS)
UNKNOWN_TOPIC = 3
REQUEST_TIMED_OUT = 7
INVALID_REQUEST = 42
ELECTION_NOT_NEEDED = 84
PREFERRED, UNCLEAN = 0, 1

every_version = pytest.mark.parametrize("version", VERSIONS)


def ask(
    broker: RunningBroker, version: int, partitions: Any, *, election_type: int = PREFERRED
) -> Any:
    return broker.ask(
        Api.ELECT_LEADERS,
        version,
        election_type=election_type,
        topic_partitions=partitions,
        timeout=1000,
    )


def answers(reply: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.topic, one.partition_id): one.error_code
        for topic in reply.replica_election_results
        for one in topic.partition_result
    }


@every_version
def test_who_leads_need_not_be_elected(running_broker: RunningBroker, version: int) -> None:
    running_broker.create_topic("rides", partitions=2)
    asked = [{"topic": "rides", "partitions": (1, 7)}, {"topic": "nobody", "partitions": (0,)}]

    reply = ask(running_broker, version, asked)

    assert getattr(reply, "error_code", 0) == 0
    assert answers(reply) == {
        ("rides", 1): ELECTION_NOT_NEEDED,
        ("rides", 7): UNKNOWN_TOPIC,
        ("nobody", 0): UNKNOWN_TOPIC,
    }
    assert all(one.error_message for one in reply.replica_election_results[0].partition_result)


@every_version
def test_of_all_partitions_none_needs_an_election(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides", partitions=2)
    assert ask(running_broker, version, None).replica_election_results == ()


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_unclean_elections_are_not_needed_either(
    running_broker: RunningBroker, version: int
) -> None:
    running_broker.create_topic("rides")
    asked = [{"topic": "rides", "partitions": (0,)}]
    reply = ask(running_broker, version, asked, election_type=UNCLEAN)
    assert answers(reply) == {("rides", 0): ELECTION_NOT_NEEDED}


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_there_is_no_other_type_of_election(running_broker: RunningBroker, version: int) -> None:
    reply = ask(running_broker, version, None, election_type=2)
    assert (reply.error_code, reply.replica_election_results) == (INVALID_REQUEST, ())
