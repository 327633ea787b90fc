"""The keys of the archive's objects.

```
owner/<n:020>.json                                  which cluster writes here; create-only
topics/<topic>/<topic id>/topic/<n:020>.json        the topic's settings and partition count; create-only
topics/<topic>/<topic id>/deleted.json              the topic was deleted
topics/<topic>/<topic id>/<partition>/
    seg/<base:020>-<next:020>-e<epoch>-<token>.seg  log bytes as on disk, then the trailer (segment_trailer.py)
    man/<n:020>.json                                one manifest entry (manifest_entry.py); create-only
    man/<n:020>.full                                the manifest after entry n (manifest.py); create-only
```
"""

import re
from typing import NamedTuple
from uuid import UUID

from respool.model.ids import LeaderEpoch, Offset, TopicId

OWNER_PREFIX = "owner/"
TOPICS_PREFIX = "topics/"
_SEGMENT = re.compile(r"(\d{20})-(\d{20})-e(\d+)-([0-9a-f]{32})\.seg")
_NUMBERED = re.compile(r"(\d{20})\.(json|full)")
_TOPIC = re.compile(r"topics/([a-zA-Z0-9._-]{1,249})/([0-9a-f]{32})/(.+)")


class SegmentName(NamedTuple):
    base: Offset
    next: Offset
    leader_epoch: LeaderEpoch
    token: str


class TopicKeys(NamedTuple):
    topic: str
    topic_id: TopicId

    @property
    def prefix(self) -> str:
        return f"{TOPICS_PREFIX}{self.topic}/{self.topic_id.hex}/"

    @property
    def descriptions(self) -> str:
        return f"{self.prefix}topic/"

    def description(self, number: int) -> str:
        return f"{self.descriptions}{number:020d}.json"

    @property
    def deleted(self) -> str:
        return f"{self.prefix}deleted.json"

    def partition(self, partition: int) -> "PartitionKeys":
        return PartitionKeys(f"{self.prefix}{partition}/")


class PartitionKeys(NamedTuple):
    prefix: str

    @property
    def segments(self) -> str:
        return f"{self.prefix}seg/"

    @property
    def manifest(self) -> str:
        return f"{self.prefix}man/"

    def segment(self, base: Offset, end: Offset, *, leader_epoch: int, token: str) -> str:
        """A new name for each attempt, so that a late write never replaces the object of another attempt."""
        return f"{self.segments}{base:020d}-{end:020d}-e{leader_epoch}-{token}.seg"

    def entry(self, number: int) -> str:
        return f"{self.manifest}{number:020d}.json"

    def full(self, number: int) -> str:
        return f"{self.manifest}{number:020d}.full"

    def is_segment(self, key: str) -> bool:
        """True if the key is a segment's in this partition's own folder."""
        prefix = self.segments
        return key.startswith(prefix) and parse_segment_name(key[len(prefix) :]) is not None


def owner_key(number: int) -> str:
    return f"{OWNER_PREFIX}{number:020d}.json"


def parse_segment_name(name: str) -> SegmentName | None:
    found = _SEGMENT.fullmatch(name)
    if found is None:
        return None
    base, end, epoch, token = found.groups()
    return SegmentName(Offset(int(base)), Offset(int(end)), LeaderEpoch(int(epoch)), token)


def parse_numbered(key: str) -> tuple[int, str] | None:
    """The number and kind, `json` or `full`, of an entry, an owner or a description."""
    found = _NUMBERED.fullmatch(key.rpartition("/")[2])
    return (int(found[1]), found[2]) if found is not None else None


def parse_topic_key(key: str) -> tuple[TopicKeys, str] | None:
    """The topic of a key, and what follows its folder."""
    found = _TOPIC.fullmatch(key)
    if found is None:
        return None
    return TopicKeys(found[1], TopicId(UUID(hex=found[2]))), found[3]
