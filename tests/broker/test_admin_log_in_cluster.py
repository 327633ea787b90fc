"""In a cluster, a change is one line as well: at the broker that took the request, and at none that hears of it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from broker.cluster_world import ONE, TWO, Cluster, plays
from respool.broker.admin_log import AdminLog
from respool.model.ids import BrokerId
from respool.wire.api_table import Api
from respool.wire.codec import Request

BY = "[client 'tester' at unknown]"
TOPIC = 2
SET = 0
NOT_COORDINATOR = 16


class NotedAdminLog(AdminLog):
    """The real one, which also notes which broker logs."""

    def __init__(self, broker: BrokerId, brokers: list[BrokerId]) -> None:
        super().__init__()
        self._broker, self._brokers = broker, brokers

    def log(self, request: Request, what: str) -> None:
        self._brokers.append(self._broker)
        super().log(request, what)


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.brokers: list[BrokerId] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def admin_lines(cluster: Cluster) -> Iterator[Lines]:
    """All lines of all brokers, and who logged them."""
    logger = logging.getLogger("respool.broker.admin_log")
    found, level = Lines(), logger.level
    for number, node in cluster.nodes.items():
        node.broker.admin_log = NotedAdminLog(number, found.brokers)
    logger.addHandler(found)
    logger.setLevel(logging.INFO)
    try:
        yield found
    finally:
        logger.removeHandler(found)
        logger.setLevel(level)


async def create(cluster: Cluster, name: str, *, at: BrokerId) -> None:
    topic = {
        "name": name,
        "num_partitions": 2,
        "replication_factor": 2,
        "assignments": [],
        "configs": [],
    }
    reply = await cluster[at].ask(
        Api.CREATE_TOPICS, 7, topics=[topic], timeout=10_000, validate_only=False
    )
    assert reply.topics[0].error_code == 0
    await cluster.until(
        lambda: all(name in node.broker.image.topics for node in cluster.nodes.values())
    )


async def alter(cluster: Cluster, topic: str, setting: str, value: str, *, at: BrokerId) -> None:
    config = {"name": setting, "config_operation": SET, "value": value}
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [config]}
    reply = await cluster[at].ask(
        Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    )
    assert reply.responses[0].error_code == 0, reply


@plays(brokers=2)
async def test_a_change_is_logged_once_and_where_it_was_asked_for(cluster: Cluster) -> None:
    """Neither the controller nor a broker that hears of the change through the store logs it."""
    with admin_lines(cluster) as found:
        for at in (ONE, TWO):
            name = f"fares-{at}"
            await create(cluster, name, at=at)
            await alter(cluster, name, "retention.ms", "5000", at=at)
            grown = {"name": name, "count": 3, "assignments": None}
            await cluster[at].ask(
                Api.CREATE_PARTITIONS, 3, topics=[grown], timeout=10_000, validate_only=False
            )
            moved = {"name": name, "partitions": [{"partition_index": 0, "replicas": [2]}]}
            await cluster[at].ask(
                Api.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[moved], timeout=10_000
            )
            deleted = {"name": name, "topic_id": None}
            await cluster[at].ask(Api.DELETE_TOPICS, 6, topics=[deleted], timeout=10_000)
            await cluster.pass_time(5_000)
            assert found.lines == [
                f"created topic '{name}': partitions 2, replication factor 2 {BY}",
                f"changed configs of topic '{name}': retention.ms='5000' {BY}",
                f"grew topic '{name}': partitions 3 {BY}",
                f"reassigned partitions: {name}-0 to [2] {BY}",
                f"deleted topic '{name}' {BY}",
            ]
            assert found.brokers == [at] * 5
            found.lines.clear()
            found.brokers.clear()


@plays(brokers=2)
async def test_an_election_that_a_client_asks_for_is_logged_and_the_controller_s_own_is_not(
    cluster: Cluster,
) -> None:
    await cluster.create([1, 2])
    await cluster.until_in_sync(1, 2)
    with admin_lines(cluster) as found:
        cluster[ONE].take_offline()
        await cluster.until_led(TWO)
        assert found.lines == []
        await cluster[ONE].stop()
        await cluster[ONE].start()
        await cluster.until_in_sync(1, 2)
        wanted = [{"topic": "rides", "partitions": [0]}]
        await cluster[TWO].ask(
            Api.ELECT_LEADERS, 2, election_type=0, topic_partitions=wanted, timeout=10_000
        )
        assert found.lines == [f"elected leaders (preferred): rides-0 {BY}"]
        assert found.brokers == [TWO]


@plays(brokers=2, offsets_topic_partitions=1)
async def test_a_group_is_deleted_at_its_coordinator_and_a_refusal_elsewhere_is_no_line(
    cluster: Cluster,
) -> None:
    async def coordinator() -> BrokerId | None:
        asked = {"key_type": 0, "coordinator_keys": ["billing"]}
        (one,) = (await cluster[ONE].ask(Api.FIND_COORDINATOR, 4, **asked)).coordinators
        return BrokerId(one.node_id) if one.error_code == 0 else None

    async def commit(at: BrokerId) -> int:
        offset: dict[str, Any] = {
            "partition_index": 0,
            "committed_offset": 0,
            "committed_leader_epoch": -1,
            "committed_metadata": None,
        }
        reply = await cluster[at].ask(
            Api.OFFSET_COMMIT,
            8,
            group_id="billing",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": "rides", "partitions": [offset]}],
        )
        return int(reply.topics[0].partitions[0].error_code)

    await cluster.create([1, 2])
    while (at := await coordinator()) is None:
        await cluster.pass_time(100)
    with admin_lines(cluster) as found:
        other = TWO if at == ONE else ONE
        assert await commit(other) == NOT_COORDINATOR
        while await commit(at):
            await cluster.pass_time(100)
        reply = await cluster[other].ask(Api.DELETE_GROUPS, 2, groups_names=["billing"])
        assert reply.results[0].error_code == NOT_COORDINATOR
        await cluster[at].ask(Api.DELETE_GROUPS, 2, groups_names=["billing"])
        assert found.lines == [
            f"set offsets of group 'billing': rides-0=0 {BY}",
            f"deleted group 'billing' {BY}",
        ]
        assert found.brokers == [at]
