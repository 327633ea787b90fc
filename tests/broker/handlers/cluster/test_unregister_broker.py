"""UnregisterBroker: the broker must be stopped, and drained."""

from typing import Any

from broker.cluster_world import ONE, THREE, TWO, Cluster, plays
from broker.running_broker import RunningBroker
from respool.wire.api_table import Api

INVALID_REQUEST = 42
DUPLICATE_BROKER_REGISTRATION = 101
BROKER_ID_NOT_REGISTERED = 102


async def unregister(cluster: Cluster, broker: int) -> tuple[int, str]:
    reply = await cluster[ONE].ask(Api.UNREGISTER_BROKER, 0, broker_id=broker)
    return int(reply.error_code), reply.error_message or ""


async def fenced(cluster: Cluster) -> set[int]:
    """The brokers that are listed though they do not run."""
    reply: Any = await cluster[ONE].ask(
        Api.DESCRIBE_CLUSTER,
        2,
        include_cluster_authorized_operations=False,
        endpoint_type=1,
        include_fenced_brokers=True,
    )
    return {one.broker_id for one in reply.brokers if one.is_fenced}


def test_a_single_broker_is_not_unregistered(running_broker: RunningBroker) -> None:
    for broker_id, code in (
        (running_broker.broker.settings.broker_id, DUPLICATE_BROKER_REGISTRATION),
        (99, BROKER_ID_NOT_REGISTERED),
    ):
        reply = running_broker.ask(Api.UNREGISTER_BROKER, 0, broker_id=broker_id)
        assert reply.error_code == code
        assert str(broker_id) in reply.error_message


@plays(brokers=3)
async def test_a_broker_that_runs_is_refused_and_stays(cluster: Cluster) -> None:
    code, why = await unregister(cluster, THREE)

    assert code == DUPLICATE_BROKER_REGISTRATION
    assert "runs: drain it" in why
    await cluster.pass_time(5_000)
    assert THREE in cluster[ONE].broker.image.brokers


@plays(brokers=3)
async def test_a_stopped_broker_without_replicas_leaves_the_cluster(cluster: Cluster) -> None:
    await cluster.create((ONE, TWO))
    await cluster[THREE].stop()
    await cluster.until(lambda: THREE not in cluster[ONE].broker.image.brokers)
    assert await fenced(cluster) == {THREE}

    assert await unregister(cluster, THREE) == (0, "")

    assert await fenced(cluster) == set()
    # As in Kafka, which has forgotten it.
    assert (await unregister(cluster, THREE))[0] == BROKER_ID_NOT_REGISTERED


@plays(brokers=3)
async def test_a_dead_broker_with_replicas_is_drained_first(cluster: Cluster) -> None:
    await cluster.create((ONE, THREE), (TWO, THREE))
    cluster[THREE].kill()
    await cluster.until(lambda: THREE not in cluster[ONE].broker.image.brokers)

    code, why = await unregister(cluster, THREE)

    assert code == INVALID_REQUEST
    assert "has 2 replicas: drain it first" in why
    assert THREE in cluster.image(0).replicas
    assert await fenced(cluster) == {THREE}
