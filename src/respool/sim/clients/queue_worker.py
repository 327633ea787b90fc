"""Simulated members of share groups, and the client that sets a group's settings and watches its start.

A worker accepts, releases and rejects, renews, acknowledges after its locks have ended or never, loses its
connections, dies and comes back under the same or another name, leaves and joins again.
"""

from collections.abc import Callable, Sequence
from typing import Any

from respool.client.queues.queue_session import Acknowledgement
from respool.model.ids import BrokerId, TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.sim.checks.queue_history import QueueHistory
from respool.sim.checks.queue_ledger import QueueGroup
from respool.sim.clients.queue_member import HeldRecord, QueueMember
from respool.sim.clients.sim_client import OK, RETRIABLE, SimClient
from respool.wire.api_table import Api

GROUP_RESOURCE = 32
INVALID_CONFIG = 40


class QueueWorker(QueueMember):
    """Handles records at random until it winds down."""

    def __init__(self, name: str, **member: Any) -> None:
        super().__init__(name, **member)
        self._failure_odds = self.rng.choice((0.05, 0.3))
        self._pause_ms = self.rng.choice((20, 200))

    async def work(self) -> None:
        while not self.is_winding_down:
            try:
                await self._turn()
            except PeerUnreachable:
                await self.pause()
        try:
            await self.leave()
        except PeerUnreachable:
            self.history.counts["queues: left without an answer"] += 1

    async def _turn(self) -> None:
        if self.group.name not in self.history.configured:
            await self.pause()
            return
        fate = self.rng.random()
        if fate < 0.02:
            self.history.counts["queues: deaths"] += 1
            await self.die(is_new_member=self.rng.random() < 0.5)
        elif fate < 0.03:
            await self.leave()
        elif fate < 0.05:
            # Longer than a lock.
            await self.pause(1_500 * self.group.lock_ms / 1_000)
        await self.beat()
        if not self.assigned:
            await self.pause()
            return
        await self.fetch(
            records_max=self.rng.choice((1, 3, 10)), wait_ms=self.rng.choice((0, 100, 500))
        )
        for broker in list(self.held):
            await self._handle(broker)
        await self.pause(self._pause_ms)

    async def _handle(self, broker: BrokerId) -> None:
        for place, offset, held in [
            (place, offset, held)
            for place, of in self.held[broker].items()
            for offset, held in of.items()
        ]:
            if held.is_slow and self.rng.random() < 0.7:
                continue
            kind = self._draw(held)
            if kind is not None:
                self.decide(broker, place, offset, kind)
        if self._sessions[broker].epoch <= 0:
            return
        if any(self.held[broker].values()) and self.rng.random() < 0.2:
            await self.renew(broker)
        if broker in self._sessions and self.rng.random() < 0.3:
            await self.acknowledge(broker)

    def _draw(self, held: HeldRecord) -> Acknowledgement | None:
        fate = self.rng.random()
        if fate < self._failure_odds:
            kinds = (Acknowledgement.RELEASE, Acknowledgement.RELEASE, Acknowledgement.REJECT)
            return self.rng.choice(kinds)
        if fate < self._failure_odds + 0.1:
            held.is_slow = True
            return None
        return Acknowledgement.ACCEPT


class DiligentWorker(QueueMember):
    """Accepts everything at once: in the end, nothing may be left."""

    async def work(self) -> None:
        while not self.is_winding_down:
            try:
                await self.beat()
                if not self.assigned or not await self.fetch(records_max=200, wait_ms=100):
                    await self.pause(100)
            except PeerUnreachable:
                await self.pause()
            for broker, by_place in list(self.held.items()):
                for place, held in by_place.items():
                    for offset in list(held):
                        self.decide(broker, place, offset, Acknowledgement.ACCEPT)
        await self.leave()


class QueueObserver(SimClient):
    """Sets the groups' settings, and watches where the groups start."""

    history: QueueHistory

    def __init__(
        self,
        name: str,
        *,
        groups: Sequence[QueueGroup],
        is_known: Callable[[str], bool],
        **client: Any,
    ) -> None:
        """`is_known`: all brokers have heard of the group's settings."""
        super().__init__(name, **client)
        self._groups = groups
        self._is_known = is_known

    async def work(self) -> None:
        while not self.is_winding_down:
            for group in self._groups:
                try:
                    if group.name in self.history.configured:
                        await self.look(group)
                    else:
                        await self._configure(group)
                except PeerUnreachable:
                    await self.pause()
            await self.pause(400)

    async def _configure(self, group: QueueGroup) -> None:
        if self._is_known(group.name):
            self.history.configured.add(group.name)
            return
        reply = await self.ask(
            self.any_broker(),
            Api.INCREMENTAL_ALTER_CONFIGS,
            1,
            resources=[
                {
                    "resource_type": GROUP_RESOURCE,
                    "resource_name": group.name,
                    "configs": [
                        {"name": name, "config_operation": 0, "value": value}
                        for name, value in group.configs.items()
                    ],
                }
            ],
            validate_only=False,
        )
        code = int(reply.responses[0].error_code)
        # A broker may not have heard yet of the topic for dead letters.
        if code not in RETRIABLE | {OK, INVALID_CONFIG}:
            self.unexpected("IncrementalAlterConfigs of a group", code)

    async def look(self, group: QueueGroup) -> dict[TopicPartition, tuple[int, int]] | None:
        """The group's start and lag in each partition that it has state of; None: ask again.

        Raises:
            PeerUnreachable: there was no reply.
        """
        reply = await self.ask_coordinator(
            "group",
            group.name,
            Api.DESCRIBE_SHARE_GROUP_OFFSETS,
            1,
            groups=[{"group_id": group.name, "topics": None}],
        )
        (answer,) = reply.groups
        found: dict[TopicPartition, tuple[int, int]] = {}
        codes = [int(answer.error_code)]
        for topic in answer.topics:
            for one in topic.partitions:
                codes.append(int(one.error_code))
                name = TopicPartition(topic.topic_name, one.partition_index)
                found[name] = int(one.start_offset), int(one.lag)
                if not one.error_code and one.start_offset >= 0:
                    self.history.ledgers[group.name].on_start(name, one.start_offset)
        for code in filter(None, codes):
            if code not in RETRIABLE:
                self.unexpected("DescribeShareGroupOffsets", code)
            self.on_code(code, coordinator=("group", group.name))
            return None
        return found
