"""Reads the contents of an archive: topics, their descriptions, and a manifest for each partition."""

from collections.abc import Collection
from dataclasses import dataclass, field

from respool.archive.archived_topic import TopicDescription, decode_description
from respool.archive.manifest import Manifest
from respool.archive.object_keys import TOPICS_PREFIX, TopicKeys, parse_topic_key
from respool.broker.archive.manifest_files import load_manifest
from respool.broker.archive.topic_descriptions import newest_description
from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.model.operator_errors import NotFound
from respool.ports.object_store import ObjectStore, list_all


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPartition:
    partition: int
    # None: it contradicts itself, as `problem` says.
    manifest: Manifest | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTopic:
    keys: TopicKeys
    description: TopicDescription | None
    partitions: list[StoredPartition] = field(default_factory=list)


async def read_contents(store: ObjectStore, topics: Collection[str] = ()) -> list[StoredTopic]:
    """Read these topics, or all.

    Raises:
        ArchiveUnavailable: the store does not answer.
        NotFound: there is no such topic.
    """
    found: dict[TopicKeys, set[int]] = {}
    for one in await list_all(store, TOPICS_PREFIX):
        parsed = parse_topic_key(one.key)
        if parsed is None or (topics and parsed[0].topic not in topics):
            continue
        numbers = found.setdefault(parsed[0], set())
        number = parsed[1].partition("/")[0]
        if number.isdecimal():
            numbers.add(int(number))
    if missing := sorted(set(topics) - {keys.topic for keys in found}):
        raise NotFound(f"{store.address} has no topic {', '.join(missing)}")
    return [await _read_topic(store, keys, found[keys]) for keys in sorted(found)]


async def _read_topic(store: ObjectStore, keys: TopicKeys, numbers: set[int]) -> StoredTopic:
    _, content = await newest_description(store, keys)
    description: TopicDescription | None = None
    if content is not None:
        try:
            description = decode_description(content, name=keys.descriptions)
        except ArchiveCorrupt:
            description = None
    partitions = []
    for number in sorted(numbers):
        try:
            manifest = await load_manifest(store, keys.partition(number))
        except ArchiveCorrupt as error:
            partitions.append(StoredPartition(partition=number, manifest=None, problem=str(error)))
        else:
            partitions.append(StoredPartition(partition=number, manifest=manifest))
    return StoredTopic(keys=keys, description=description, partitions=partitions)
