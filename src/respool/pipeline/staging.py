"""Parquet files on the way into a table: Spark's executors write them to a staging folder; then they are moved.

```
<table>/_staging/<try>/date=2026-11-12/part-….parquet      while Spark writes; files of a failed attempt stay here
<table>/date=2026-11-12/part-….parquet                     in place; not part of the table until a commit names it
<table>/_delta_log/…07.json                                the commit that names it
```
The names of part files are unique, so moving never overwrites a file.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

from pyarrow import parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STAGING = "_staging"
# Spark's name for a partition whose value is null.
_NULL = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    # Relative to the table's folder after the move, and to the attempt's folder before it.
    path: str
    size: int
    rows: int
    partition: dict[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    folder: Path
    files: tuple[StagedFile, ...]

    @classmethod
    def nothing(cls, table: Path) -> "Staged":
        """Stage no files, for a commit of positions only."""
        return cls(folder=table / STAGING / uuid4().hex, files=())

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.files)

    @property
    def paths(self) -> list[str]:
        """The paths of the files before they are moved."""
        return [str(self.folder / one.path) for one in self.files]


def stage(frame: "DataFrame", table: Path, partition_by: Sequence[str]) -> Staged:
    """Let the executors write the frame's rows into a staging folder."""
    folder = table / STAGING / uuid4().hex
    # By default, Spark uses the deprecated one of its timestamp formats.
    frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame.write.partitionBy(*partition_by).parquet(str(folder))
    files = (_described(one, folder) for one in sorted(folder.rglob("*.parquet")))
    # An empty partition of a frame may produce a file without rows.
    return Staged(folder=folder, files=tuple(one for one in files if one.rows))


def put_in_place(staged: Staged, table: Path) -> None:
    """Move the files into the table's folder, and remove the staging folder."""
    for one in staged.files:
        place = table / one.path
        place.parent.mkdir(parents=True, exist_ok=True)
        (staged.folder / one.path).rename(place)
    drop(staged)


def drop(staged: Staged) -> None:
    shutil.rmtree(staged.folder, ignore_errors=True)


def drop_old_tries(table: Path, *, older_than_s: float) -> int:
    """Remove staging folders of crashed attempts; running attempts have recent files."""
    before = time.time() - older_than_s
    dropped = 0
    for folder in (table / STAGING).glob("*"):
        newest = max(one.stat().st_mtime for one in (folder, *folder.rglob("*")))
        if newest < before:
            shutil.rmtree(folder, ignore_errors=True)
            dropped += 1
    return dropped


def _described(file: Path, folder: Path) -> StagedFile:
    path = file.relative_to(folder)
    pairs = (part.partition("=") for part in path.parts[:-1])
    return StagedFile(
        path=path.as_posix(),
        size=file.stat().st_size,
        rows=parquet.read_metadata(file).num_rows,
        partition={
            name: None if value == _NULL else unquote(value) for name, _equals, value in pairs
        },
    )
