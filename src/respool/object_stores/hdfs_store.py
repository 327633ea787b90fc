"""HDFS as an object store, through hdfs-native (no Java), in the extra `hdfs`.

As in a folder, a temporary file is written, synced, and renamed without overwriting: a crash leaves no half file under
a final name.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import count
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from respool.model.archiving.archive_errors import ArchiveRefused, ArchiveUnavailable, ObjectMissing
from respool.model.extras import how_to_install
from respool.ports.object_store import Creation, ObjectInfo

ASIDE = ".writing"


class HdfsStore:
    def __init__(self, address: str, *, options: Mapping[str, str], process_id: UUID) -> None:
        """`options` are Hadoop's, as in core-site.xml; its files are read from HADOOP_CONF_DIR too.

        `process_id` keeps the names of unfinished files of different processes apart.

        Raises:
            ArchiveRefused: hdfs-native is missing, or cannot use the address.
        """
        try:
            from hdfs_native import AsyncClient, WriteOptions
        except ImportError as error:
            raise ArchiveRefused(
                f"an archive at {address} needs hdfs-native; {how_to_install('hdfs')}"
            ) from error
        self.address = address
        url = urlsplit(address)
        self._root = url.path.rstrip("/")
        self._options: Any = WriteOptions
        try:
            self._client: Any = AsyncClient(f"{url.scheme}://{url.netloc}", dict(options))
        except Exception as error:
            raise ArchiveRefused(f"archive = {address!r}: {error}") from error
        self._names = (f"{process_id.hex}-{number}" for number in count())

    async def write(self, key: str, parts: AsyncIterator[bytes | memoryview]) -> None:
        aside = await self._write_aside(parts)
        await self._call("rename", key, self._publish(aside, key))

    async def create(self, key: str, content: bytes) -> Creation:
        aside = await self._write_aside(_once(content))
        try:
            await self._publish(aside, key)
        except Exception:  # noqa: BLE001
            # The NameNode's text for "exists" differs between versions, so the caller must check.
            found = await self._info(key)
            await self._call("delete", key, self._client.delete(aside))
            return Creation.UNKNOWN if found is None else Creation.EXISTS
        return Creation.CREATED

    async def read(self, key: str, begin: int = 0, end: int | None = None) -> bytes:
        info = await self._info(key)
        if info is None:
            raise ObjectMissing(f"{self.address} has no object {key}")
        end = info.length if end is None else min(end, info.length)
        if end <= begin:
            return b""
        reader = await self._call("open", key, self._client.read(self._path(key)))
        data: bytes = await self._call("read", key, reader.read_range(begin, end - begin))
        return data

    async def list(self, prefix: str, *, after: str = "", limit: int = 1_000) -> list[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        path = self._path(folder) if folder else self._root or "/"
        if folder and await self._info(folder) is None:
            return []
        found = []
        try:
            async for status in self._client.list_status(path, recursive=True):
                key = status.path.removeprefix(self._root).lstrip("/")
                if (
                    not status.isdir
                    and key.startswith(prefix)
                    and key > after
                    and not key.startswith(ASIDE)
                ):
                    found.append(ObjectInfo(key, status.length, status.modification_time))
        except FileNotFoundError:
            return []
        except Exception as error:
            raise ArchiveUnavailable(f"{self.address}: list {prefix}: {error}") from error
        return sorted(found)[:limit]

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            if await self._info(key) is not None:
                await self._call("delete", key, self._client.delete(self._path(key)))

    async def close(self) -> None:
        pass

    async def _write_aside(self, parts: AsyncIterator[bytes | memoryview]) -> str:
        aside = f"{self._root}/{ASIDE}/{next(self._names)}"
        options = self._options(create_parent=True)
        writer = await self._call("create", aside, self._client.create(aside, options))
        async for part in parts:
            await self._call("write", aside, writer.write(bytes(part)))
        await self._call("hsync", aside, writer.hsync())
        await self._call("close", aside, writer.close())
        return aside

    async def _publish(self, aside: str, key: str) -> None:
        path = self._path(key)
        await self._client.mkdirs(path.rpartition("/")[0], create_parent=True)
        await self._client.rename(aside, path, overwrite=False)

    async def _info(self, key: str) -> Any:
        try:
            return await self._client.get_file_info(self._path(key))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise ArchiveUnavailable(f"{self.address}: {key}: {error}") from error

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    async def _call(self, call: str, key: str, work: Any) -> Any:
        try:
            return await work
        except FileNotFoundError as error:
            raise ObjectMissing(f"{self.address} has no object {key}") from error
        except Exception as error:
            raise ArchiveUnavailable(f"{self.address}: {call} {key}: {error}") from error


async def _once(content: bytes) -> AsyncIterator[bytes | memoryview]:
    yield content
