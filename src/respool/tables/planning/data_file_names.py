"""Names of a table's files, which say what the files contain. Pure.

```
data/<partition>/<first>-<next>[-<day>]-<random>.parquet      rows of one partition, offsets in [first, next), in order
```
A name is never reused, so no attempt replaces the file of another.
"""

import re
from dataclasses import dataclass

FOLDER = "data"
_NAME = re.compile(
    rf"{FOLDER}/(\d{{1,10}})/(\d{{20}})-(\d{{20}})(?:-(\d{{4}}-\d\d-\d\d))?-([0-9a-f]{{16}})\.parquet"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    partition: int
    first: int
    next: int
    random: str
    # YYYY-MM-DD, in tables divided by day.
    day: str | None = None

    @property
    def path(self) -> str:
        day = "" if self.day is None else f"-{self.day}"
        return (
            f"{FOLDER}/{self.partition}/{self.first:020}-{self.next:020}{day}-{self.random}.parquet"
        )


def parse_path(path: str) -> FileName | None:
    """Parse the end of a path or URL; None if it is not one of our files."""
    tail = "/".join(path.rsplit("/", 3)[-3:])
    match = _NAME.fullmatch(tail)
    if match is None:
        return None
    partition, first, end, day, random = match.groups()
    return FileName(
        partition=int(partition), first=int(first), next=int(end), random=random, day=day
    )
