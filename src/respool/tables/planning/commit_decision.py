"""Decides what a writer does after a commit that was refused or got no answer, on the table as loaded again. Pure.

```
position found   token found   the partition
end              mine          DONE: the commit is in the table, only its answer was lost
begin                          AGAIN: the same files with the same token, on the version found
other, or end    not mine      DISCARD: another writer has these offsets, or some of them
```
A commit of several partitions is decided for each of them. The token is the same for all attempts of a commit, so an
attempt that takes effect late is recognized, and its repetition refused by the version.
"""

from collections.abc import Mapping
from enum import Enum, auto

from respool.tables.planning.positions import TopicRange


class CommitVerdict(Enum):
    DONE = auto()
    AGAIN = auto()
    DISCARD = auto()


def decide(
    ranges: Mapping[int, TopicRange], *, found: Mapping[int, int], is_token_found: bool
) -> dict[int, CommitVerdict]:
    """`ranges` are the offsets that the commit adds, by partition; `found` the positions of the loaded table."""
    if is_token_found:
        # All partitions of a commit are in one version.
        return dict.fromkeys(ranges, CommitVerdict.DONE)
    return {
        partition: CommitVerdict.AGAIN
        if found.get(partition, one.begin) == one.begin
        else CommitVerdict.DISCARD
        for partition, one in ranges.items()
    }
