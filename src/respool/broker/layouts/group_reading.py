"""How far one consumer group has read a topic."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from respool.model.cluster import TopicImage
from respool.model.ids import Offset


class ReadingGroups(Protocol):
    """Finds the groups that read a topic: `TopicReaders`."""

    async def readers(self, topic: TopicImage) -> "list[GroupReading]":
        """
        Raises:
            RequestError: some groups cannot be asked for now.
        """
        ...


class GroupReading(NamedTuple):
    """A group that reads the topic."""

    group_id: str
    has_members: bool
    # Committed offsets by partition, of the topic itself and of each view that the group reads.
    committed: Mapping[str, Mapping[int, Offset]]

    def is_behind(self, ends: Mapping[int, Offset]) -> bool:
        """True if it has not committed one of these offsets, or a later one."""
        return any(
            offsets.get(number, Offset(-1)) < end
            for offsets in self.committed.values()
            for number, end in ends.items()
        )
