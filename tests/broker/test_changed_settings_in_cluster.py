"""Settings that are changed while a cluster runs: every broker follows them, whichever was asked."""

from typing import Any

from broker.cluster_world import ONE, TWO, Cluster, plays
from respool.model.errors import InvalidRequest, NotEnoughReplicas
from respool.model.ids import BrokerId
from respool.wire.api_table import Api

BROKER, GROUP = 4, 32
SET, DELETE = 0, 1


async def change(
    cluster: Cluster, kind: int, name: str, setting: str, value: str | None, *, at: BrokerId = ONE
) -> int:
    operation = DELETE if value is None else SET
    configs = [{"name": setting, "value": value, "config_operation": operation}]
    wanted: dict[str, Any] = {"resource_type": kind, "resource_name": name, "configs": configs}
    reply = await cluster[at].ask(
        Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[wanted], validate_only=False
    )
    (response,) = reply.responses
    return int(response.error_code)


def retention(cluster: Cluster) -> dict[int, int]:
    return {int(one): cluster[one].partition().config.retention_ms for one in (ONE, TWO)}


@plays(brokers=2)
async def test_a_changed_default_acts_on_all_brokers_and_a_brokers_own_on_itself(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    assert await change(cluster, BROKER, "", "log.retention.ms", "5000") == 0
    await cluster.until(lambda: retention(cluster) == {1: 5000, 2: 5000})
    # Any broker takes it, as with topics.
    assert await change(cluster, BROKER, "2", "log.retention.hours", "1", at=ONE) == 0
    await cluster.until(lambda: retention(cluster) == {1: 5000, 2: 3_600_000})

    cluster[TWO].kill()
    await cluster[TWO].start()
    await cluster.until(lambda: retention(cluster) == {1: 5000, 2: 3_600_000})

    assert await change(cluster, BROKER, "2", "log.retention.hours", None) == 0
    assert await change(cluster, BROKER, "", "log.retention.ms", None) == 0
    week = 7 * 24 * 3_600_000
    await cluster.until(lambda: retention(cluster) == {1: week, 2: week})


@plays(brokers=2)
async def test_a_leader_keeps_to_a_changed_number_of_replicas_in_sync(cluster: Cluster) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    cluster[TWO].kill()
    await cluster.until_in_sync(1)
    assert (await cluster.produce(b"a", at=ONE)).error_code == 0

    code = await change(cluster, BROKER, "1", "min.insync.replicas", "2")
    assert code == InvalidRequest.code
    assert await change(cluster, BROKER, "", "min.insync.replicas", "2") == 0
    await cluster.until(lambda: not cluster[ONE].partition().role.leading().is_min_isr_met)
    assert (await cluster.produce(b"b", at=ONE)).error_code == NotEnoughReplicas.code

    assert await change(cluster, BROKER, "", "min.insync.replicas", None) == 0
    await cluster.until(lambda: cluster[ONE].partition().role.leading().is_min_isr_met)
    assert (await cluster.produce(b"c", at=ONE)).error_code == 0


@plays(brokers=2)
async def test_a_groups_configuration_is_known_to_every_broker(cluster: Cluster) -> None:
    setting = "consumer.session.timeout.ms"
    assert await change(cluster, GROUP, "riders", setting, "50000", at=TWO) == 0
    await cluster.until(lambda: "riders" in cluster[ONE].broker.image.group_configs)
    config = cluster[ONE].broker.image.group_configs["riders"]
    assert config.consumer_session_timeout_ms == 50_000
