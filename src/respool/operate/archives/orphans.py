"""Objects that no manifest refers to: uploads without an entry, and segments that retention has dropped."""

from collections.abc import Sequence
from uuid import UUID

from respool.archive.object_keys import (
    TOPICS_PREFIX,
    TopicKeys,
    parse_segment_name,
    parse_topic_key,
)
from respool.broker.archive.manifest_files import load_manifest
from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.ports.object_store import ObjectInfo, ObjectStore, list_all


async def find_orphans(
    store: ObjectStore, *, older_than_ms: int, probe_id: UUID
) -> list[ObjectInfo]:
    """Find segments that no entry needs, and that are older than this by the store's own clock.

    A partition with a contradictory manifest has none: nothing is certain there.

    Raises:
        ArchiveUnavailable: the store does not answer.
    """
    now_ms = await _store_time(store, probe_id)
    # Listed before the manifests are read, so objects committed in between are referred to.
    found: dict[tuple[TopicKeys, int], list[ObjectInfo]] = {}
    for one in await list_all(store, TOPICS_PREFIX):
        parsed = parse_topic_key(one.key)
        if parsed is None or now_ms - one.modified_ms < older_than_ms:
            continue
        number, _, rest = parsed[1].partition("/")
        if number.isdecimal() and parse_segment_name(rest.removeprefix("seg/")) is not None:
            found.setdefault((parsed[0], int(number)), []).append(one)
    orphans: list[ObjectInfo] = []
    for (keys, partition), objects in found.items():
        try:
            manifest = await load_manifest(store, keys.partition(partition))
        except ArchiveCorrupt:
            continue
        named = {one.key for one in manifest.segments}
        orphans += [one for one in objects if one.key not in named]
    return orphans


async def delete_orphans(store: ObjectStore, orphans: Sequence[ObjectInfo]) -> None:
    for one in orphans:
        await store.delete([one.key])


async def _store_time(store: ObjectStore, probe_id: UUID) -> int:
    """The store's clock, from the time of an object that was just written: ours may differ."""
    key = f"probe/{probe_id.hex}"
    await store.create(key, b"probe")
    (probe,) = await store.list(key)
    await store.delete([key])
    return probe.modified_ms
