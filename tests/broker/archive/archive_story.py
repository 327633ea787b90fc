"""Stories of brokers that archive to one bucket which fails; every record that was acknowledged is read back."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from broker.cluster_world import TOPIC, Cluster
from respool.archive.manifest import Manifest
from respool.archive.manifest_entry import decode_entry
from respool.archive.object_keys import PartitionKeys, TopicKeys
from respool.archive.segment_trailer import SegmentTrailer
from respool.model.ids import BrokerId
from respool.records.batch import RecordBatch, read_header
from respool.records.record import read_records

SETTINGS: dict[str, Any] = {
    "archive": "memory://archive",
    "archive_check_ms": 100,
    "archive_retry_ms_max": 500,
    "archive_delete_delay_ms": 1_000,
    "retention_check_ms": 100,
    "archive_fetch_wait_ms": 5_000,
    "archive_lookup_ms": 20_000,
}
TOPIC_SETTINGS: dict[str, Any] = {
    "remote_storage_enable": "true",
    "local_retention_ms": 1,
    "retention_ms": -1,
    "segment_bytes": 1_024,
    "respool_archive_max_age_ms": 300,
    "file_delete_delay_ms": 0,
}


async def create_archived(cluster: Cluster, *replicas: int, **overrides: Any) -> None:
    await cluster.create(tuple(replicas), **{**TOPIC_SETTINGS, **overrides})


def keys_of(cluster: Cluster) -> PartitionKeys:
    node = next(one for one in cluster.nodes.values() if one.is_up)
    topic = node.broker.image.topics[TOPIC]
    return TopicKeys(TOPIC, topic.id).partition(0)


def archived(cluster: Cluster) -> Manifest:
    """The manifest as the bucket has it; E3: it folds, without gaps or overlaps."""
    keys, manifest = keys_of(cluster), None
    objects = cluster.objects.objects
    manifest = Manifest(keys)
    numbers = [one for one in objects if one.startswith(keys.manifest) and one.endswith(".json")]
    for number in range(1, len(numbers) + 1):
        key = keys.entry(number)
        assert key in objects, f"entry {number} of {len(numbers)} is missing"
        manifest.apply(number, decode_entry(objects[key][0], keys, name=key))
    return manifest


def check_objects(cluster: Cluster) -> None:
    """E1, E6: what a valid entry names is there and whole."""
    for segment in archived(cluster).segments:
        content = cluster.objects.objects[segment.key][0]
        trailer = SegmentTrailer.decode(content[segment.log_bytes :], name=segment.key)
        for number in range(len(trailer.chunk_sums)):
            begin = number * trailer.chunk_bytes
            end = min(begin + trailer.chunk_bytes, segment.log_bytes)
            trailer.check_chunk(number, content[begin:end], name=segment.key)


def check_local(cluster: Cluster) -> None:
    """E5: no replica's disk begins after what is archived."""
    archived_end = archived(cluster).archived_end or 0
    for node in cluster.nodes.values():
        if node.is_up and node.partition().is_online:
            log = node.partition().log
            assert log.local_start <= max(archived_end, log.log_start)


async def read_values(
    cluster: Cluster, at: BrokerId, *, begin: int = 0, errors: list[int] | None = None
) -> dict[int, bytes]:
    """Every record by its offset, as a consumer reads them; KAFKA_STORAGE_ERROR is repeated."""
    found: dict[int, bytes] = {}
    offset = begin
    while True:
        part = await cluster.fetch(offset, at=at, max_wait=6_000)
        if part.error_code == 56:
            if errors is not None:
                errors.append(offset)
            await cluster.pass_time(500)
            continue
        assert part.error_code == 0, f"error {part.error_code} at offset {offset}"
        data = bytes(part.records or b"")
        if not data:
            if offset >= part.high_watermark:
                return found
            continue
        while len(data) >= 61:
            header = read_header(data)
            if header.size > len(data):
                break
            for record in read_records(RecordBatch(header, data[: header.size]), limit=10**7):
                if record.offset >= offset:
                    assert record.offset not in found
                    found[record.offset] = record.value or b""
            data = data[header.size :]
            offset = header.next_offset


@dataclass
class Story:
    """One seed: produce, kill, restart and break the bucket, then heal and compare."""

    cluster: Cluster
    rng: Random
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    number: int = 0

    async def run(self, *, steps: int = 40) -> None:
        cluster = self.cluster
        cluster.objects.rng = Random(self.rng.random())
        await create_archived(cluster, *cluster.nodes)
        for _ in range(steps):
            await self._step()
            check_local(cluster)
            check_objects(cluster)
        await self._heal()
        leader = cluster.leader()
        found = await read_values(cluster, leader.id)
        missing = self.acknowledged.keys() - found.keys()
        assert not missing, f"acknowledged offsets {sorted(missing)[:5]} are missing"
        wrong = [at for at, value in self.acknowledged.items() if found[at] != value]
        assert not wrong, f"offsets {wrong[:5]} have other records"
        check_objects(cluster)

    async def _step(self) -> None:
        cluster, rng, faults = self.cluster, self.rng, self.cluster.objects.faults
        up = [node for node in cluster.nodes.values() if node.is_up]
        actions: list[tuple[int, Callable[[], Any]]] = [
            (12, self._produce),
            (6, lambda: cluster.pass_time(rng.randrange(50, 800))),
        ]
        if len(up) == len(cluster.nodes):
            actions.append((2, lambda: self._kill(rng.choice(up))))
        else:
            actions.append((4, self._restart))
        _, action = rng.choices(actions, weights=[weight for weight, _ in actions])[0]
        result = action()
        if result is not None:
            await result
        if not rng.randrange(6):
            faults.refused = rng.choice((0.0, 0.2))
            faults.lost_answer = rng.choice((0.0, 0.3))
            faults.false_exists = rng.choice((0.0, 0.3))
            faults.late_write = rng.choice((0.0, 0.3))
            faults.bit_flip = rng.choice((0.0, 0.1))
            faults.latency_ms_max = rng.choice((0, 50, 500))
            faults.is_away = not rng.randrange(5)

    async def _produce(self) -> None:
        cluster = self.cluster
        for _ in range(self.rng.randrange(1, 6)):
            values = [b"%d" % (self.number + at) + b"." * 90 for at in range(3)]
            self.number += 3
            leaders = [node for node in cluster.nodes.values() if node.is_up and node.leads()]
            if not leaders:
                await cluster.pass_time(200)
                return
            done = await cluster.produce(*values, at=leaders[0].id, timeout_ms=3_000)
            if done.error_code == 0:
                for at, value in enumerate(values):
                    self.acknowledged[done.base_offset + at] = value

    async def _kill(self, node: Any) -> None:
        node.kill()

    async def _restart(self) -> None:
        for node in self.cluster.nodes.values():
            if not node.is_up:
                await node.start()

    async def _heal(self) -> None:
        cluster = self.cluster
        cluster.objects.faults.heal()
        cluster.objects.faults.latency_ms_max = 0
        await self._restart()
        await cluster.until(
            lambda: any(node.is_up and node.leads() for node in cluster.nodes.values())
        )
        await cluster.until_in_sync(*cluster.nodes)
        leader = cluster.leader()
        # E11: all that is committed is archived within a while.
        await cluster.until(
            lambda: (archived(cluster).archived_end or 0) >= leader.partition().high_watermark
        )
        check_local(cluster)
