"""A folder as an object store: `file://`. For one machine, for tests, and for network file systems.

An object is written to a temporary file, synced, and linked to its name: `link(2)` refuses a name that
exists, so two creators cannot both succeed, and a crash leaves no half object.
"""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import RawIOBase
from itertools import count
from pathlib import Path
from typing import TypeVar

from respool.model.archiving.archive_errors import ArchiveUnavailable, ObjectMissing
from respool.ports.object_store import Creation, ObjectInfo

T = TypeVar("T")

THREADS = 4
# Files that are being written are here: no listing shows them.
ASIDE = ".writing"
_KINDS = {
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EROFS: "denied",
    errno.ENOENT: "missing_bucket",
}


class FolderStore:
    def __init__(self, folder: Path) -> None:
        """The folder must exist: if it is missing, a file system may not be mounted."""
        self._folder = folder
        self._aside = folder / ASIDE
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="respool-archive")
        self._names = (f"{os.getpid()}-{id(self)}-{number}" for number in count())

    @property
    def address(self) -> str:
        return self._folder.as_uri()

    async def write(self, key: str, parts: AsyncIterator[bytes | memoryview]) -> None:
        aside = await self._run(self._begin)
        try:
            with aside.open("wb", buffering=0) as file:
                async for part in parts:
                    await self._run(partial(_write_all, file, part))
                await self._run(lambda: os.fsync(file.fileno()))
            await self._run(lambda: self._publish(aside, key, replace=True))
        finally:
            await self._run(lambda: aside.unlink(missing_ok=True))

    async def create(self, key: str, content: bytes) -> Creation:
        def create() -> Creation:
            aside = self._begin()
            try:
                with aside.open("wb", buffering=0) as file:
                    _write_all(file, content)
                    os.fsync(file.fileno())
                self._publish(aside, key, replace=False)
            except FileExistsError:
                return Creation.EXISTS
            finally:
                aside.unlink(missing_ok=True)
            return Creation.CREATED

        return await self._run(create)

    async def read(self, key: str, begin: int = 0, end: int | None = None) -> bytes:
        def read() -> bytes:
            try:
                with self._path(key).open("rb", buffering=0) as file:
                    size = os.fstat(file.fileno()).st_size
                    wanted = max(0, (size if end is None else min(end, size)) - begin)
                    data = bytearray()
                    while len(data) < wanted:
                        part = os.pread(file.fileno(), wanted - len(data), begin + len(data))
                        if not part:
                            break
                        if len(part) == wanted:
                            return part
                        data += part
                    return bytes(data)
            except FileNotFoundError:
                raise ObjectMissing(f"{self.address} has no object {key}") from None

        return await self._run(read)

    async def list(self, prefix: str, *, after: str = "", limit: int = 1_000) -> list[ObjectInfo]:
        def list_some() -> list[ObjectInfo]:
            found = []
            # A prefix need not end at a folder.
            top = prefix.rpartition("/")[0]
            for key, entry in self._walk(self._path(top) if top else self._folder, top):
                if key.startswith(prefix) and key > after:
                    status = entry.stat()
                    found.append(ObjectInfo(key, status.st_size, status.st_mtime_ns // 1_000_000))
            return sorted(found)[:limit]

        return await self._run(list_some)

    async def delete(self, keys: Sequence[str]) -> None:
        def delete() -> None:
            for key in keys:
                self._path(key).unlink(missing_ok=True)

        await self._run(delete)

    async def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            kind = _KINDS.get(error.errno or 0, "failed")
            raise ArchiveUnavailable(f"{self.address}: {error}", kind=kind) from error

    def _path(self, key: str) -> Path:
        names = key.split("/")
        assert all(one not in {"", ".", ".."} for one in names), f"{key!r} is not a key"
        return self._folder.joinpath(*names)

    def _begin(self) -> Path:
        if not self._folder.is_dir():
            raise FileNotFoundError(
                errno.ENOENT, "the archive's folder does not exist", str(self._folder)
            )
        self._aside.mkdir(exist_ok=True)
        return self._aside / next(self._names)

    def _publish(self, aside: Path, key: str, *, replace: bool) -> None:
        """Give a synced file its name, durably."""
        path = self._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        if replace:
            aside.replace(path)
        else:
            os.link(aside, path)
        for folder in (path.parent, *path.parent.parents):
            _sync_folder(folder)
            if folder == self._folder:
                break

    def _walk(self, folder: Path, name: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
        try:
            entries = list(os.scandir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            key = f"{name}/{entry.name}" if name else entry.name
            if entry.is_dir():
                if key != ASIDE:
                    yield from self._walk(Path(entry.path), key)
            else:
                yield key, entry


def _write_all(file: RawIOBase, part: bytes | memoryview) -> None:
    left = memoryview(part)
    while left:
        left = left[file.write(left) or 0 :]


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
