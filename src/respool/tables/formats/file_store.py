"""The storage of a table's files: a local folder, or a bucket by URL. Credentials come from the environment."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from respool.tables.errors import TableError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    # Relative to the table's folder.
    path: str
    size: int
    changed_ms: int


class FileStore:
    """Files of one table, by paths relative to its folder."""

    def __init__(self, location: str) -> None:
        """
        Raises:
            TableError: the location's scheme is not supported.
        """
        self.location = location.rstrip("/")
        try:
            if "://" in location:
                self._files, self._base = fs.FileSystem.from_uri(self.location)
            else:
                self._files, self._base = fs.LocalFileSystem(), self.location
        except (pa.ArrowException, OSError) as error:
            raise TableError(
                f"{location} cannot be opened: {error}",
                hint="a folder, file://, s3:// or gs://, with credentials in the environment",
            ) from error
        self.is_local = isinstance(self._files, fs.LocalFileSystem)

    @property
    def local_folder(self) -> Path:
        assert self.is_local
        return Path(self._base)

    def url_of(self, path: str) -> str:
        return f"{self.location}/{path}"

    def relative(self, url: str) -> str:
        """The path of a file in this folder, from its URL in whatever form a library gives it."""
        for prefix in (self.location, self._base, f"file://{self._base}"):
            if url.startswith(f"{prefix}/"):
                return url[len(prefix) + 1 :]
        return url

    @property
    def arrow_files(self) -> fs.FileSystem:
        """The table's folder as a file system of Arrow's own.

        delta-rs's own is written in Python: Arrow's threads would acquire the GIL to release files, and abort the
        process when that happens while the interpreter ends.
        """
        return fs.SubTreeFileSystem(self._base, self._files)

    def open_output(self, path: str) -> Any:
        target = f"{self._base}/{path}"
        if self.is_local:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
        return self._files.open_output_stream(target)

    def open_input(self, path: str) -> Any:
        return self._files.open_input_file(f"{self._base}/{path}")

    def sync(self, path: str) -> None:
        """Make a written file and its name durable; object stores do that on their own."""
        if not self.is_local:
            return
        file = Path(self._base) / path
        for one in (file, *self._folders_of(file)):
            handle = os.open(one, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def _folders_of(self, file: Path) -> Iterator[Path]:
        for folder in file.parents:
            yield folder
            if folder == Path(self._base).parent:
                return

    def size(self, path: str) -> int:
        return int(self._files.get_file_info(f"{self._base}/{path}").size)

    def exists(self, path: str) -> bool:
        return bool(self._files.get_file_info(f"{self._base}/{path}").type != fs.FileType.NotFound)

    def delete(self, path: str) -> None:
        """Delete a file; if it is gone already, that is fine."""
        with suppress(FileNotFoundError):
            self._files.delete_file(f"{self._base}/{path}")

    def list(self, folder: str) -> Iterator[StoredFile]:
        selector = fs.FileSelector(f"{self._base}/{folder}", allow_not_found=True, recursive=True)
        for one in self._files.get_file_info(selector):
            if one.type == fs.FileType.File:
                yield StoredFile(
                    path=one.path[len(self._base) + 1 :],
                    size=int(one.size),
                    changed_ms=int(one.mtime_ns or 0) // 1_000_000,
                )
