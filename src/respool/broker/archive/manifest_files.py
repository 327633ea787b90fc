"""A partition's manifest in the object store: read as a whole, and followed to its end."""

import asyncio

from respool.archive.manifest import FULL_INTERVAL, Manifest
from respool.archive.manifest_chain import chain_of
from respool.archive.manifest_entry import ManifestEntry, decode_entry
from respool.archive.object_keys import PartitionKeys
from respool.model.archiving.archive_errors import ArchiveCorrupt, ObjectMissing
from respool.ports.object_store import ObjectStore, list_all

READ_AT_ONCE = 16


async def load_manifest(store: ObjectStore, keys: PartitionKeys) -> Manifest:
    """Read the manifest; a listing, and the entries after the last whole one.

    Raises:
        ArchiveUnavailable: the store does not answer.
        ArchiveCorrupt: it contradicts itself.
    """
    found = chain_of([one.key for one in await list_all(store, keys.manifest)])
    manifest = Manifest(keys)
    if found.full:
        key = keys.full(found.full)
        manifest = Manifest.decode(await _read(store, key), keys, name=key)
        if manifest.number != found.full:
            raise ArchiveCorrupt(f"{key} says that it is {manifest.number}")
    for at in range(0, len(found.entries), READ_AT_ONCE):
        numbers = found.entries[at : at + READ_AT_ONCE]
        entries = await asyncio.gather(*(_read_entry(store, keys, one) for one in numbers))
        for number, entry in zip(numbers, entries, strict=True):
            manifest.apply(number, entry)
    return manifest


async def follow_manifest(store: ObjectStore, manifest: Manifest) -> bool:
    """Read the entries that were added since; return whether there were any. Raises as `load_manifest`."""
    is_new = False
    while True:
        number = manifest.next_number
        try:
            entry = await _read_entry(store, manifest.keys, number)
        except ObjectMissing:
            return is_new
        if manifest.next_number == number:
            # Otherwise another reader was faster.
            manifest.apply(number, entry)
        is_new = True


async def write_full(store: ObjectStore, manifest: Manifest) -> None:
    """Write the whole manifest, so that a reader need not read all entries, if it is due."""
    if manifest.number and manifest.number % FULL_INTERVAL == 0:
        await store.create(manifest.keys.full(manifest.number), manifest.encode())


async def _read_entry(store: ObjectStore, keys: PartitionKeys, number: int) -> ManifestEntry:
    key = keys.entry(number)
    try:
        return decode_entry(await store.read(key), keys, name=key)
    except ArchiveCorrupt:
        # A bit may have flipped on the way.
        return decode_entry(await store.read(key), keys, name=key)


async def _read(store: ObjectStore, key: str) -> bytes | memoryview:
    try:
        return await store.read(key)
    except ObjectMissing as error:
        raise ArchiveCorrupt(f"{key} was listed, and is gone") from error
