"""A cluster without brokers: a metadata store as a dict, who runs, and who has all that was committed.

The store refuses what its guards forbid. Leaders do what they may by themselves: commit, and change their ISR.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from respool.cluster import keys
from respool.cluster.broker_requests import admit
from respool.cluster.controller_decisions import decide
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.keys import BrokerRegistration
from respool.cluster.liveness import MissingBrokers
from respool.cluster.own_replicas import clear_offline, mark_offline, resign_everywhere
from respool.cluster.topic_requests import create_topic
from respool.cluster.view import ClusterView, read_view
from respool.model.cluster import (
    BrokerEndpoint,
    ClusterImage,
    PartitionImage,
    RegistryEntry,
    TopicImage,
    TopicRules,
)
from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from respool.model.topic_config import Flush, TopicConfig
from respool.ports.metadata_store import StoredValue

FUZZ = os.environ.get("RESPOOL_FUZZ") == "long"
ONE, TWO, THREE, FOUR, FIVE, SIX = map(BrokerId, range(1, 7))
SYNCED = {"respool.flush": "always"}


def image_of(
    *replicas: int, isr: Sequence[int] | None = None, leader: int | None = -1, **more: object
) -> PartitionImage:
    """A partition: all in sync and the first leads, where nothing else is said."""
    in_sync = tuple(BrokerId(one) for one in (replicas if isr is None else isr))
    if leader == -1:
        leader = in_sync[0] if in_sync else None
    return PartitionImage(
        replicas=tuple(BrokerId(one) for one in replicas),
        isr=in_sync,
        leader=None if leader is None else BrokerId(leader),
        leader_epoch=LeaderEpoch(5),
        **more,  # type: ignore[arg-type]
    )


def topic_of(
    *partitions: PartitionImage, name: str = "t", rules: TopicRules | None = None
) -> TopicImage:
    rules = rules or TopicRules()
    return TopicImage(
        name=name,
        id=TopicId(UUID(int=1)),
        partitions=partitions,
        overrides={},
        config=TopicConfig(
            min_insync_replicas=rules.min_isr,
            unclean_leader_election_enable=rules.is_unclean_allowed,
            respool_flush=Flush.ALWAYS if rules.is_synced else Flush.OS,
        ),
    )


def view_of(
    *partitions: PartitionImage,
    live: Sequence[int] | Mapping[BrokerId, str | None] = (1, 2, 3),
    rules: TopicRules | None = None,
    stopping: Sequence[int] = (),
    drained: Sequence[int] = (),
    missing_since_ms: Mapping[BrokerId, int] | None = None,
    now_ms: int = 0,
    settings: ControllerSettings | None = None,
) -> ClusterView:
    """One topic `t` with these partitions, on brokers 1 to 6 of which some run."""
    racks: Mapping[BrokerId, str | None] = (
        live if isinstance(live, Mapping) else dict.fromkeys(map(BrokerId, live))
    )
    topic = topic_of(*partitions, rules=rules)
    return ClusterView(
        image=ClusterImage(
            cluster_id="c",
            brokers={
                one: BrokerEndpoint(
                    id=one, host="h", port=1, rack=rack, is_draining=one in stopping
                )
                for one, rack in racks.items()
            },
            controller=ONE,
            registry={
                one: RegistryEntry(is_drained=one in drained, rack=racks.get(one), revision=1)
                for one in map(BrokerId, range(1, 7))
            },
            topics={"t": topic} if partitions else {},
        ),
        controller_revision=1,
        missing_since_ms=missing_since_ms or {},
        now_ms=now_ms,
        settings=settings or ControllerSettings(),
    )


def written(writes: Sequence[GuardedWrite]) -> dict[int, PartitionImage]:
    """The partitions of the one topic that some writes change, by number."""
    return {
        keys.parse_partition_key(key)[1]: keys.decode_partition(value)
        for write in writes
        for key, value in write.puts.items()
        if key.startswith(keys.PARTITIONS)
    }


class ClusterWorld:
    def __init__(
        self, racks: Mapping[BrokerId, str | None], *, settings: ControllerSettings | None = None
    ) -> None:
        self.values: dict[str, StoredValue] = {}
        self.revision = 0
        self.now_ms = 0
        self.settings = settings or ControllerSettings()
        self.racks = dict(racks)
        # Who has everything that was committed.
        self.complete: dict[TopicPartition, set[BrokerId]] = {}
        self.absences = MissingBrokers()
        self._viewed: tuple[tuple[int, int], ClusterView] | None = None
        self.put(keys.CONTROLLER, keys.encode_controller(ONE))
        for one in racks:
            self.put(keys.registry_key(one), keys.encode_registry(RegistryEntry()))
            self.register(one)

    # The store

    def put(self, key: str, value: bytes) -> None:
        self.revision += 1
        self.values[key] = StoredValue(value=value, revision=self.revision)

    def apply_what_holds(self, writes: Sequence[GuardedWrite]) -> None:
        self.apply([write for write in writes if not self._broken_guards(write)])

    def apply(self, writes: Sequence[GuardedWrite]) -> None:
        for write in writes:
            self.revision += 1
            assert not self._broken_guards(write)
            for key, value in write.puts.items():
                self.values[key] = StoredValue(value=value, revision=self.revision)
            for key in write.deletes:
                self.values.pop(key, None)

    def _broken_guards(self, write: GuardedWrite) -> list[str]:
        revisions = {key: stored.revision for key, stored in self.values.items()}
        return [one.key for one in write.guards if revisions.get(one.key, 0) != one.revision]

    def view(self) -> ClusterView:
        state = (self.revision, self.now_ms)
        if self._viewed is None or self._viewed[0] != state:
            self._viewed = (state, self._read())
        return self._viewed[1]

    def _read(self) -> ClusterView:
        controller = self.values[keys.CONTROLLER].revision
        view = read_view(
            self.values,
            controller_revision=controller,
            now_ms=self.now_ms,
            settings=self.settings,
        )
        missing = self.absences.on_view(known=view.registry, live=view.brokers, now_ms=self.now_ms)
        return replace(view, missing_since_ms=missing)

    def image(self, of: TopicPartition) -> PartitionImage:
        found = self.view().partition(of)
        assert found is not None
        return found[1]

    def images(self) -> dict[TopicPartition, PartitionImage]:
        return {
            TopicPartition(topic.name, number): image
            for topic, number, image in self.view().partitions()
        }

    def live(self) -> list[BrokerId]:
        return sorted(self.view().brokers)

    # Brokers

    def register(self, broker: BrokerId) -> None:
        endpoint = BrokerEndpoint(id=broker, host="h", port=1, rack=self.racks[broker])
        registration = BrokerRegistration(
            endpoint=endpoint, incarnation=UUID(int=self.revision + 1)
        )
        self.put(keys.broker_key(broker), keys.encode_broker(registration))

    def announce_stop(self, broker: BrokerId) -> None:
        stored = self.values[keys.broker_key(broker)]
        old = keys.decode_broker(broker, stored.value, revision=stored.revision)
        new = replace(old, endpoint=replace(old.endpoint, is_draining=True))
        self.put(keys.broker_key(broker), keys.encode_broker(new))

    def die(self, broker: BrokerId) -> None:
        self.revision += 1
        del self.values[keys.broker_key(broker)]

    def come_back(self, broker: BrokerId, *, was_clean: bool) -> None:
        view = self.view()
        self.apply(
            resign_everywhere(
                [view.topics[name] for name in sorted(view.topics)], broker, was_clean=was_clean
            )
        )
        again = resign_everywhere(self.view().topics.values(), broker, was_clean=was_clean)
        assert again == []
        if not was_clean:
            for of, image in self.images().items():
                assert broker not in (*image.isr, *image.elr, image.leader)
                if not view.topics[of.topic].rules.is_synced:
                    self.complete[of].discard(broker)
        self.register(broker)

    def admit(self, broker: BrokerId) -> None:
        self.apply(admit(self.view(), broker))

    # The controller

    def create(
        self, name: str, *, partitions: int, factor: int, overrides: Mapping[str, str]
    ) -> None:
        view = self.view()
        self.apply(
            create_topic(
                view,
                name,
                topic_id=TopicId(UUID(int=self.revision)),
                overrides=overrides,
                partition_count=partitions,
                replication_factor=factor,
            )
        )
        for of, image in self.images().items():
            if of.topic == name:
                self.complete[of] = set(image.isr)

    def decide(self) -> None:
        """Let the controller decide: the same each time, and nothing more once it is written."""
        view = self.view()
        writes = decide(view)
        assert decide(view) == writes
        self.apply(writes)
        assert decide(self.view()) == []

    # Leaders

    def commit(self, of: TopicPartition) -> bool:
        """Something is written and committed, if it can be: now only the ISR has everything."""
        image = self.image(of)
        min_isr = self.view().topics[of.topic].rules.min_isr
        if not self.is_led(image) or image.elr or len(image.isr) < image.min_isr(min_isr):
            return False
        self.complete[of] = set(image.isr)
        return True

    def shrink_isr(self, of: TopicPartition, leaver: BrokerId) -> None:
        image = self.image(of)
        if self.is_led(image) and leaver in image.isr and leaver != image.leader:
            isr = tuple(one for one in image.isr if one != leaver)
            self._write_isr(of, image, isr)

    def catch_up(self, of: TopicPartition, joiner: BrokerId) -> bool:
        """A replica that runs has copied everything, and the leader takes it into the ISR."""
        image = self.image(of)
        view = self.view()
        if (
            not self.is_led(image)
            or joiner in image.isr
            or joiner not in image.replicas
            or not view.can_join(joiner)
            or joiner in image.offline
        ):
            return False
        self.complete[of].add(joiner)
        self._write_isr(of, image, (*image.isr, joiner))
        return True

    def catch_up_everywhere(self, *, is_copying: bool = True) -> bool:
        """All that can catch up do; new replicas too, or only old ones. Whether there was any."""
        caught_up = [
            self.catch_up(of, one)
            for of, image in self.images().items()
            for one in image.replicas
            if is_copying or one not in image.adding
        ]
        return any(caught_up)

    def is_led(self, image: PartitionImage) -> bool:
        leader = image.serving_leader
        return leader is not None and keys.broker_key(leader) in self.values

    # Logs

    def fail_log(self, of: TopicPartition, broker: BrokerId) -> None:
        """It is offline there, and the broker tells, if it runs."""
        image, view = self.image(of), self.view()
        if broker in image.replicas and view.is_live(broker):
            rules = view.topics[of.topic].rules
            self._write(of, image, mark_offline(image, broker, rules, live=view.brokers))

    def mend_logs(self, broker: BrokerId) -> None:
        """A broker that runs has opened all it has in order."""
        if self.view().is_live(broker):
            for of, image in self.images().items():
                self._write(of, image, clear_offline(image, broker))

    def _write_isr(
        self, of: TopicPartition, image: PartitionImage, isr: tuple[BrokerId, ...]
    ) -> None:
        topic = self.view().topics[of.topic]
        self._write(of, image, image.with_isr(isr, min_isr=topic.rules.min_isr))

    def _write(self, of: TopicPartition, image: PartitionImage, changed: PartitionImage) -> None:
        if changed != image:
            topic = self.view().topics[of.topic]
            self.put(keys.partition_key(topic.id, of.partition), keys.encode_partition(changed))
