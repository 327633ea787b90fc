"""A cluster restored from its archive alone serves what was archived, byte for byte."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka import Producer

from respool.drivers.system_sources import SystemClock, SystemRandomSource
from respool.model.archiving.archive_errors import ArchiveCorrupt
from respool.model.ids import BrokerId
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from respool.object_stores.folder_store import FolderStore
from respool.operate.archives.archived_segments import download_segment, verify_segment
from respool.operate.archives.bucket_contents import StoredTopic, read_contents
from respool.operate.archives.orphans import delete_orphans, find_orphans
from respool.operate.archives.restoring import RestoredTopic, restore
from respool.testing import Broker
from support.archived_broker import (
    archived_topic,
    archiving_broker,
    messages,
    segments_of,
    wait_until_archived,
    write,
)
from support.confluent_client import ConfluentClient
from support.topics import Topics
from support.waiting import wait_until


def contents(folder: Path, *topics: str) -> list[StoredTopic]:
    return asyncio.run(read_contents(FolderStore(folder), topics))


def restored(folder: Path, data: Path, *, take_over: bool = True) -> list[RestoredTopic]:
    return asyncio.run(
        restore(
            FolderStore(folder),
            data,
            broker_id=BrokerId(1),
            take_over=take_over,
            clock=SystemClock(),
            rng=SystemRandomSource(),
        )
    )


def downloaded(folder: Path, topic: str, to: Path) -> bytes:
    """The bytes of the log, as the archive has them."""
    to.mkdir()
    (stored,) = contents(folder, topic)
    manifest = stored.partitions[0].manifest
    assert manifest is not None

    async def download() -> bytes:
        store = FolderStore(folder)
        paths = [await download_segment(store, one, to) for one in manifest.segments]
        return b"".join(path.read_bytes() for path in paths)

    return asyncio.run(download())


def archived_end(folder: Path, topic: str) -> int:
    try:
        (stored,) = contents(folder, topic)
    except NotFound:
        return 0
    manifest = stored.partitions[0].manifest if stored.partitions else None
    return 0 if manifest is None else manifest.archived_end or 0


def local_bytes(broker: Broker, topic: str) -> bytes:
    files = sorted((Path(broker.data) / f"{topic}-0").glob("*.log"))
    return b"".join(one.read_bytes() for one in files)


def test_what_is_archived_is_the_log_byte_for_byte(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    with archiving_broker(folder) as broker:
        topic = archived_topic(broker, local_retention_ms="-2")
        write(broker, topic, messages(500))
        wait_until(lambda: archived_end(folder, topic) == 500, "everything is archived")
        assert downloaded(folder, topic, tmp_path / "got") == local_bytes(broker, topic)


def test_a_restored_broker_serves_everything_and_archives_on(tmp_path: Path) -> None:
    folder, data = tmp_path / "archive", tmp_path / "restored"
    folder.mkdir()
    client = ConfluentClient()
    with archiving_broker(folder) as broker:
        topic = archived_topic(broker, retention_bytes="100000000")
        view = Topics(broker.bootstrap).view(f"{topic}.v.paid", of=topic, where="tag = 'paid'")
        write(broker, topic, messages(300))
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
        producer.init_transactions(30)
        for is_kept in (False, True):
            producer.begin_transaction()
            producer.produce(topic, b"kept" if is_kept else b"aborted")
            producer.flush()
            (producer.commit_transaction if is_kept else producer.abort_transaction)(30)
        wait_until_archived(broker, topic, 304)
        before = client.read(broker.bootstrap, [(topic, 0)])[topic, 0]
    (one,) = restored(folder, data)
    assert one.stored.description is not None
    assert one.stored.description.config["retention.bytes"] == "100000000"
    with archiving_broker(folder, data=data) as again:
        assert client.bounds(again.bootstrap, (topic, 0)) == (0, 304)
        assert client.read(again.bootstrap, [(topic, 0)])[topic, 0] == before
        of_view = client.read(again.bootstrap, [(view, 0)])[view, 0]
        assert [one.offset for one in of_view] == [7, 107, 207]
        write(again, topic, messages(200, begin=300))
        wait_until_archived(again, topic, 504)
        found = client.read(again.bootstrap, [(topic, 0)])[topic, 0]
        assert found[: len(before)] == before
        assert len(found) == len(before) + 200
        again.restart()
        assert client.bounds(again.bootstrap, (topic, 0)) == (0, 504)


def test_the_former_owner_archives_no_more(tmp_path: Path) -> None:
    folder, old = tmp_path / "archive", tmp_path / "old"
    folder.mkdir()
    with archiving_broker(folder, data=old) as broker:
        topic = archived_topic(broker)
        write(broker, topic, messages(100))
        wait_until_archived(broker, topic, 100)
    restored(folder, tmp_path / "restored")
    before = sorted(folder.rglob("*.*"))
    with archiving_broker(folder, data=old) as broker:
        write(broker, topic, messages(100, begin=100))
        wait_until(lambda: "is the archive of cluster" in broker.log, "it is refused")
        # What it has stays where it is.
        found = ConfluentClient().read_from(broker.bootstrap, (topic, 0), 100, count=100)
        assert len(found) == 100
    assert sorted(folder.rglob("*.*")) == before


def test_a_restore_is_refused_before_it_writes_anything(tmp_path: Path) -> None:
    folder, data = tmp_path / "archive", tmp_path / "restored"
    folder.mkdir()
    with pytest.raises(OperatorError, match="has no topics"):
        restored(folder, data)
    with archiving_broker(folder) as broker:
        topic = archived_topic(broker)
        write(broker, topic, messages(300))
        wait_until_archived(broker, topic, 300)
    before = sorted(folder.rglob("*"))
    with pytest.raises(UsageError, match="is the archive of cluster") as refused:
        restored(folder, data, take_over=False)
    assert "--take-over" in refused.value.hint
    data.mkdir()
    (data / "something").touch()
    with pytest.raises(UsageError, match="is not empty"):
        restored(folder, data)
    (entry,) = folder.rglob("man/*1.json")
    content = entry.read_bytes()
    entry.unlink()
    with pytest.raises(OperatorError, match="entry 1 is missing"):
        restored(folder, tmp_path / "other")
    entry.write_bytes(content)
    assert sorted(folder.rglob("*")) == before
    assert not (tmp_path / "other").exists()


def test_verify_names_what_is_damaged_or_missing(tmp_path: Path) -> None:
    with archiving_broker(tmp_path) as broker:
        topic = archived_topic(broker)
        write(broker, topic, messages(600))
        wait_until_archived(broker, topic, 600)
    (stored,) = contents(tmp_path)
    manifest = stored.partitions[0].manifest
    assert manifest is not None
    store = FolderStore(tmp_path)
    flipped, missing, whole = manifest.segments[:3]
    path = tmp_path / flipped.key
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    (tmp_path / missing.key).unlink()

    async def verify() -> None:
        await verify_segment(store, whole)
        for damaged in (flipped, missing):
            with pytest.raises(ArchiveCorrupt, match=damaged.key):
                await verify_segment(store, damaged)

    asyncio.run(verify())
    with pytest.raises(NotFound):
        contents(tmp_path, "nothing")


def test_orphans_are_old_and_named_by_nothing(tmp_path: Path) -> None:
    with archiving_broker(tmp_path) as broker:
        topic = archived_topic(broker)
        write(broker, topic, messages(300))
        wait_until_archived(broker, topic, 300)
    named = segments_of(tmp_path, topic)
    stray = named[0].with_name(named[0].name.replace("-e0-", "-e9-"))
    stray.write_bytes(b"an upload whose entry was never written")
    store = FolderStore(tmp_path)

    async def story() -> None:
        assert await find_orphans(store, older_than_ms=60_000, probe_id=UUID(int=1)) == []
        orphans = await find_orphans(store, older_than_ms=0, probe_id=UUID(int=2))
        assert [tmp_path / one.key for one in orphans] == [stray]
        await delete_orphans(store, orphans)

    asyncio.run(story())
    assert segments_of(tmp_path, topic) == named
    assert list((tmp_path / "probe").iterdir()) == []
