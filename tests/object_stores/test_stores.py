"""Every object store keeps the same promises: a folder, an S3 server (moto), and the simulated one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest
from moto.server import ThreadedMotoServer

from respool.model.archiving.archive_errors import ArchiveUnavailable, ObjectMissing
from respool.object_stores.folder_store import FolderStore
from respool.object_stores.open_store import open_store
from respool.ports.object_store import Creation, ObjectStore, list_all
from respool.sim.net.simulated_objects import SimulatedObjects, SimulatedObjectStore
from support.sim_clock import SimClock


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def s3_options() -> dict[str, str]:
    return {
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "virtual_hosted_style_request": "false",
    }


def create_bucket(endpoint: str, name: str) -> None:
    from urllib.request import Request, urlopen

    with urlopen(Request(f"{endpoint}/{name}", method="PUT")):
        pass


@pytest.fixture(params=["folder", "s3", "simulated"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return FolderStore(tmp_path)
    if request.param == "simulated":
        return SimulatedObjectStore(SimulatedObjects(rng=Random(1), clock=SimClock()))
    endpoint: str = request.getfixturevalue("s3_endpoint")
    bucket = f"bucket-{abs(hash(str(tmp_path)))}"
    create_bucket(endpoint, bucket)
    return open_store(
        f"s3://{bucket}/some/prefix", endpoint=endpoint, region="us-east-1", options=s3_options()
    )


async def parts_of(*parts: bytes) -> AsyncIterator[bytes | memoryview]:
    for part in parts:
        yield part


def test_an_object_is_read_as_it_was_written(store: ObjectStore) -> None:
    async def story() -> None:
        await store.write("a/b", parts_of(b"0123", b"456", b"789"))
        assert bytes(await store.read("a/b")) == b"0123456789"
        assert bytes(await store.read("a/b", 2, 5)) == b"234"
        # Bytes beyond the end are left out: callers compare sizes.
        assert bytes(await store.read("a/b", 8, 50)) == b"89"
        with pytest.raises(ObjectMissing):
            await store.read("a/c")
        with pytest.raises(ObjectMissing):
            await store.read("a/c", 0, 5)

    asyncio.run(story())


def test_a_large_object_is_written_in_parts(store: ObjectStore) -> None:
    async def story() -> None:
        parts = [bytes([at]) * (6 * 1024 * 1024) for at in range(4)]
        await store.write("large", parts_of(*parts))
        assert bytes(await store.read("large")) == b"".join(parts)

    asyncio.run(story())


def test_only_one_creator_succeeds(store: ObjectStore) -> None:
    async def story() -> None:
        outcomes = await asyncio.gather(*(store.create("n/1", b"%d" % at) for at in range(8)))
        assert outcomes.count(Creation.CREATED) == 1
        assert set(outcomes) == {Creation.CREATED, Creation.EXISTS}
        winner = outcomes.index(Creation.CREATED)
        assert bytes(await store.read("n/1")) == b"%d" % winner

    asyncio.run(story())


def test_keys_are_listed_in_order_and_in_pages(store: ObjectStore) -> None:
    async def story() -> None:
        keys = [f"p/{at:03d}" for at in range(25)]
        for key in reversed(keys):
            await store.create(key, b"x" * 3)
        await store.create("q/1", b"")
        found = await list_all(store, "p/")
        assert [one.key for one in found] == keys
        assert {one.size for one in found} == {3}
        assert [one.key for one in await store.list("p/", limit=3)] == keys[:3]
        assert [one.key for one in await store.list("p/", after="p/020")] == keys[21:]
        assert [one.key for one in await store.list("p/01")] == keys[10:20]
        assert await store.list("r/") == []

    asyncio.run(story())


def test_deleting_a_missing_object_is_no_error(store: ObjectStore) -> None:
    async def story() -> None:
        await store.create("p/1", b"")
        await store.create("p/2", b"")
        await store.delete(["p/0", "p/1", "p/2"])
        await store.delete([])
        assert await store.list("p/") == []

    asyncio.run(story())


def test_an_upload_that_fails_half_way_leaves_no_object(store: ObjectStore) -> None:
    class Failed(Exception):
        pass

    async def parts() -> AsyncIterator[bytes | memoryview]:
        yield b"begin"
        raise Failed

    async def story() -> None:
        with pytest.raises(Failed):
            await store.write("half", parts())
        assert await store.list("half") == []

    asyncio.run(story())


def test_a_bucket_that_does_not_exist_is_named(s3_endpoint: str) -> None:
    store = open_store(
        "s3://nowhere", endpoint=s3_endpoint, region="us-east-1", options=s3_options()
    )

    async def story() -> None:
        with pytest.raises(ArchiveUnavailable) as missing:
            await store.create("key", b"")
        assert missing.value.kind == "missing_bucket"

    asyncio.run(story())


def test_a_folder_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    """It may be a file system that is not mounted."""
    store = FolderStore(tmp_path / "not-mounted")

    async def story() -> None:
        with pytest.raises(ArchiveUnavailable) as missing:
            await store.create("key", b"")
        assert missing.value.kind == "missing_bucket"
        assert await store.list("") == []

    asyncio.run(story())
    assert not (tmp_path / "not-mounted").exists()
