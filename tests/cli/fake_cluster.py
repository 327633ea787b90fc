"""Topics in a dictionary, behind the same methods as `respool.operate.cluster_admin.ClusterAdmin`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import PartitionLeader, TopicMetadata
from respool.client.kafka.security import Security
from respool.model.operator_errors import NotFound, OperatorError
from respool.operate.cluster_admin import TopicSetting
from respool.operate.errors import PartitionOffline, TopicExists

LEADER = PartitionLeader(broker=1, epoch=0)
DEFAULTS = {
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
    "respool.flush": "always",
    "respool.flush.interval.ms": "1000",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
}


@dataclass
class FakeTopic:
    # What each partition holds; None: nobody leads it.
    ranges: list[OffsetRange | None]
    settings: dict[str, str] = field(default_factory=dict)


class FakeCluster:
    def __init__(self) -> None:
        self.broker = ""
        self.held: dict[str, FakeTopic] = {}
        self.refuses_to_delete: set[str] = set()
        self.up = {1, 2}

    def connected_to(
        self, bootstrap: Bootstrap, security: Security, *, settings: Mapping[str, object]
    ) -> Self:
        del security, settings
        self.broker = bootstrap.servers
        return self

    def close(self) -> None:
        pass

    def add(self, name: str, *ranges: tuple[int, int] | None, **settings: str) -> None:
        self.held[name] = FakeTopic(
            [OffsetRange(start=each[0], end=each[1]) if each else None for each in ranges],
            {key.replace("_", "."): value for key, value in settings.items()},
        )

    def addresses(self) -> dict[int, tuple[str, int]]:
        return {number: ("broker.example", 9000 + number) for number in self.up}

    def topics(self) -> dict[str, TopicMetadata]:
        return {
            name: TopicMetadata(
                name=name,
                id=None,
                is_internal=name.startswith("__"),
                leaders={
                    n: None if held is None else LEADER for n, held in enumerate(topic.ranges)
                },
                replicas=dict.fromkeys(range(len(topic.ranges)), (1, 2)),
                in_sync={n: () if held is None else (2, 1) for n, held in enumerate(topic.ranges)},
            )
            for name, topic in self.held.items()
        }

    def offline(self, topic: TopicMetadata, partition: int) -> PartitionOffline:
        return PartitionOffline(
            topic.name, partition, absent=[one for one in (1, 2) if one not in self.up]
        )

    def topic(self, name: str) -> TopicMetadata:
        if name not in self.held:
            raise NotFound(f"there is no topic {name!r}")
        return self.topics()[name]

    def ranges(
        self, topics: Iterable[TopicMetadata], **_isolation: object
    ) -> dict[tuple[str, int], OffsetRange]:
        return {
            (topic.name, number): held
            for topic in topics
            for number, held in enumerate(self.held[topic.name].ranges)
            if held is not None
        }

    def settings(self, topics: Sequence[str]) -> dict[str, list[TopicSetting]]:
        found: dict[str, list[TopicSetting]] = {}
        for name in topics:
            own = self.held[name].settings
            found[name] = [
                TopicSetting(
                    name=key, value=own.get(key, value), source="topic" if key in own else "default"
                )
                for key, value in sorted(DEFAULTS.items())
            ]
        return found

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None,
        settings: Mapping[str, str],
        replication_factor: int | None = None,
    ) -> None:
        assert replication_factor in {None, 1}
        if name in self.held:
            raise TopicExists("Topic exists")
        self.held[name] = FakeTopic(
            [OffsetRange(start=0, end=0)] * (partitions or 1), dict(settings)
        )

    def grow_topic(self, name: str, *, partitions: int) -> None:
        held = self.held[name].ranges
        assert partitions > len(held)
        held += [OffsetRange(start=0, end=0)] * (partitions - len(held))

    def layout(self, name: str) -> None:
        """None of these topics was ever shrunk."""
        assert name in self.held

    def alter_topic(self, name: str, *, settings: Mapping[str, str], unset: Sequence[str]) -> None:
        unknown = sorted({*settings, *unset} - set(DEFAULTS))
        if unknown:
            raise OperatorError(f"Unknown topic config name: {unknown[0]}")
        own = self.held[name].settings
        own.update(settings)
        for key in unset:
            own.pop(key, None)

    def delete_topic(self, name: str) -> None:
        if name in self.refuses_to_delete:
            raise OperatorError("the broker's settings do not allow this")
        del self.held[name]
