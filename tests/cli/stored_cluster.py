"""A cluster that is only keys in a real etcd: brokers that do not run, and a controller that a thread plays."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID, uuid4

from cli.running import Ended, Run
from respool.cluster import keys
from respool.cluster.controller_decisions import decide
from respool.cluster.keys import BrokerRegistration, TopicRecord
from respool.cluster.view import ClusterView, read_view
from respool.drivers.etcd_options import EtcdOptions
from respool.drivers.etcd_store import EtcdStore
from respool.model.cluster import BrokerEndpoint, PartitionImage, RegistryEntry
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.ports.metadata_store import GuardFailed
from support.etcd_process import EtcdCluster

T = TypeVar("T")
LOOK_EVERY_S = 0.02


class StoredCluster:
    def __init__(self, etcd: EtcdCluster, name: str) -> None:
        self._options = EtcdOptions(endpoints=etcd.endpoints, cluster=name, allow_old_versions=True)
        self.flags = (
            "--etcd", ",".join(etcd.endpoints), "--cluster", name,
            "--set", "etcd_allow_old_versions=true",
        )  # fmt: skip

    def command(self, run: Run, *arguments: str) -> Ended:
        """`respool cluster …` on this cluster."""
        return run("cluster", *arguments, *self.flags)

    def settings_file(self, folder: Path) -> Path:
        """Of a broker of this cluster: by it the cluster is found, too."""
        file = folder / "cluster.toml"
        etcd, name = self.flags[1], self.flags[3]
        file.write_text(f'etcd = "{etcd}"\ncluster = "{name}"\netcd_allow_old_versions = true\n')
        return file

    # What is in the store.

    def put(self, values: Mapping[str, bytes]) -> None:
        self.do(lambda store: store.transact(puts=values))

    def delete(self, *keys: str) -> None:
        self.do(lambda store: store.transact(deletes=keys))

    def register(self, *brokers: int, rack: str | None = None, stopping: bool = False) -> None:
        """They run, and are known from now on."""
        for number in brokers:
            one = BrokerId(number)
            endpoint = BrokerEndpoint(
                id=one, host="broker.example", port=9000 + number, rack=rack, is_draining=stopping
            )
            registration = BrokerRegistration(endpoint=endpoint, incarnation=UUID(int=number))
            self.put({keys.broker_key(one): keys.encode_broker(registration)})
            if one not in self.view().registry:
                self.put({keys.registry_key(one): keys.encode_registry(RegistryEntry(rack=rack))})

    def die(self, broker: int) -> None:
        self.delete(keys.broker_key(BrokerId(broker)))

    def seat(self, broker: int) -> None:
        self.put({keys.CONTROLLER: keys.encode_controller(BrokerId(broker))})

    def configure(self, name: str, overrides: Mapping[str, str]) -> None:
        """What was set for a broker while it ran, or without a name for all."""
        self.put({keys.broker_config_key(name): keys.encode_overrides(overrides)})

    def create(
        self,
        name: str,
        *partitions: PartitionImage,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        record = TopicRecord(
            id=TopicId(uuid4()), overrides=overrides or {}, partition_count=len(partitions)
        )
        self.put(
            {
                keys.topic_key(name): keys.encode_topic(record),
                **{
                    keys.partition_key(record.id, number): keys.encode_partition(image)
                    for number, image in enumerate(partitions)
                },
            }
        )

    def view(self) -> ClusterView:
        return self.do(read)

    def image(self, topic: str, partition: int) -> PartitionImage:
        return self.view().topics[topic].partitions[partition]

    def do(self, work: Callable[[EtcdStore], Awaitable[T]]) -> T:
        async def connected() -> T:
            store = await EtcdStore.connect(self._options)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(connected())

    def controlled(self) -> "Controller":
        return Controller(self)


class Controller:
    """While it is entered: what is due is decided and written, and replicas that come have copied at once."""

    def __init__(self, cluster: StoredCluster) -> None:
        self._cluster = cluster
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join(30)
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            self._cluster.do(self._control)
        except BaseException as error:
            self._failure = error

    async def _control(self, store: EtcdStore) -> None:
        while not self._is_over.is_set():
            try:
                for write in decide(await read(store)):
                    await store.transact(
                        guards=write.guards, puts=write.puts, deletes=write.deletes
                    )
                await _copy(store)
            except GuardFailed:
                continue
            await asyncio.sleep(LOOK_EVERY_S)


async def read(store: EtcdStore) -> ClusterView:
    return read_view((await store.snapshot("")).values)


async def _copy(store: EtcdStore) -> None:
    view = await read(store)
    for topic, number, image in view.partitions():
        missing = [one for one in image.adding if one not in image.isr and view.is_live(one)]
        if missing:
            copied = image.with_isr((*image.isr, *missing), min_isr=1)
            key = keys.partition_key(topic.id, number)
            await store.transact(puts={key: keys.encode_partition(copied)})


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
        leader_epoch=LeaderEpoch(0),
        **more,  # type: ignore[arg-type]
    )
