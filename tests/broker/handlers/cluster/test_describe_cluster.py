"""DescribeCluster, in every version."""

from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.DESCRIBE_CLUSTER)
MISMATCHED_ENDPOINT_TYPE = 114
UNSUPPORTED_ENDPOINT_TYPE = 115
BROKERS, CONTROLLERS = 1, 2

every_version = pytest.mark.parametrize("version", VERSIONS)


def ask(
    broker: RunningBroker, version: int, *, operations: bool = False, endpoint_type: int = BROKERS
) -> Any:
    return broker.ask(
        Api.DESCRIBE_CLUSTER,
        version,
        include_cluster_authorized_operations=operations,
        endpoint_type=endpoint_type,
        include_fenced_brokers=False,
    )


@every_version
def test_tells_the_broker_and_the_cluster(start_broker: StartBroker, version: int) -> None:
    broker = start_broker(broker_id=3, listen="127.0.0.1:9099", rack="r1")

    reply = ask(broker, version)

    assert (reply.error_code, reply.error_message) == (0, None)
    assert (reply.cluster_id, reply.controller_id) == (broker.broker.image.cluster_id, 3)
    (node,) = reply.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (3, "127.0.0.1", 9099, "r1")
    assert getattr(node, "is_fenced", False) is False
    assert getattr(reply, "endpoint_type", BROKERS) == BROKERS


@every_version
def test_operations_are_told_to_those_who_ask(running_broker: RunningBroker, version: int) -> None:
    assert ask(running_broker, version).cluster_authorized_operations == -2147483648
    # Bits of create, alter, describe, cluster action, describe and alter configs, idempotent write.
    operations = ask(running_broker, version, operations=True).cluster_authorized_operations
    assert operations == 0b1_1111_1010_0000


@pytest.mark.parametrize("version", VERSIONS[1:])
@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(CONTROLLERS, MISMATCHED_ENDPOINT_TYPE), (9, UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_only_brokers_can_be_asked_for(
    running_broker: RunningBroker, version: int, endpoint_type: int, code: int
) -> None:
    reply = ask(running_broker, version, endpoint_type=endpoint_type)

    assert reply.error_code == code
    assert reply.error_message
    assert (reply.brokers, reply.controller_id) == ((), -1)
