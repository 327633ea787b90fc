"""What a replay copies, and where to: fixed when it begins, recorded, and the same when it goes on. Pure.

A span of offsets per partition of the source, and one partition of the target for each message: the same number
where both topics have as many partitions, else the one its key belongs to, as Java's clients reckon it.

Each source partition has a producer id of its own. A target partition counts what comes from it, and takes a message
only with the number it expects next. That is what makes a replay safe against itself: what an earlier, killed run
still had under way, or what a second run does at the same time, is refused or recognised, never written twice.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from respool.cli.message_format import bytes_from_json, bytes_to_json

# What is longer is recorded by its hash only, and must be given again to go on.
KEYS_BYTES_MAX = 64 * 1024


class Span(NamedTuple):
    """Offsets from `start` up to, not including, `stop`."""

    start: int
    stop: int

    @property
    def messages(self) -> int:
        return max(0, self.stop - self.start)


class ProducerId(NamedTuple):
    number: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    topic: str
    into: str
    # By the source's partition.
    spans: Mapping[int, Span]
    producers: Mapping[int, ProducerId]
    # How many partitions each topic had at the beginning; those that are added later are not used.
    source_count: int
    # The end of each partition of the target at the beginning: no copy lies before it.
    target_ends: Mapping[int, int]

    @property
    def messages(self) -> int:
        return sum(span.messages for span in self.spans.values())

    @property
    def keeps_partitions(self) -> bool:
        return self.source_count == len(self.target_ends)

    def targets_of(self, source: int) -> Iterable[int]:
        """Where messages of this source partition may go."""
        return (source,) if self.keeps_partitions else self.target_ends

    def target_for(self, source: int, key: bytes | None) -> int:
        """Where a message goes; always the same, whenever it is asked."""
        if self.keeps_partitions:
            return source
        if key is None:
            # Those without a key stay in order, as those of one key do.
            return source % len(self.target_ends)
        return partition_for_key(key, len(self.target_ends))

    def to_document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "into": self.into,
            "spans": {str(number): list(span) for number, span in self.spans.items()},
            "producers": {str(number): list(each) for number, each in self.producers.items()},
            "source_count": self.source_count,
            "target_ends": {str(number): end for number, end in self.target_ends.items()},
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "CopyPlan":
        return cls(
            topic=document["topic"],
            into=document["into"],
            spans={int(number): Span(*span) for number, span in document["spans"].items()},
            producers={
                int(number): ProducerId(*each) for number, each in document["producers"].items()
            },
            source_count=document["source_count"],
            target_ends={int(number): end for number, end in document["target_ends"].items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What somebody asked for, in their own words: by this a replay is known again."""

    topic: str
    from_text: str
    to_text: str
    into: str | None
    group: str | None
    # None: all of them.
    keys: frozenset[bytes] | None

    @property
    def fingerprint(self) -> str:
        words = [
            self.topic,
            self.from_text,
            self.to_text,
            self.into,
            self.group,
            keys_hash(self.keys),
        ]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]

    def to_document(self) -> dict[str, Any]:
        keys = None if self.keys is None else sorted(self.keys)
        is_short = keys is not None and sum(map(len, keys)) <= KEYS_BYTES_MAX
        return {
            "topic": self.topic,
            "from": self.from_text,
            "to": self.to_text,
            "into": self.into,
            "group": self.group,
            "keys": [bytes_to_json(key) for key in keys] if keys is not None and is_short else None,
            "keys_hash": keys_hash(self.keys),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Wish":
        """`keys` is None as well when they were too long to be recorded; compare `keys_hash` then."""
        keys = document["keys"]
        return cls(
            topic=document["topic"],
            from_text=document["from"],
            to_text=document["to"],
            into=document["into"],
            group=document["group"],
            keys=None
            if keys is None
            else frozenset(bytes_from_json(key, "key") or b"" for key in keys),
        )


def keys_hash(keys: frozenset[bytes] | None) -> str | None:
    if keys is None:
        return None
    digest = hashlib.sha256()
    for key in sorted(keys):
        digest.update(len(key).to_bytes(4))
        digest.update(key)
    return digest.hexdigest()


@lru_cache(maxsize=65_536)
def partition_for_key(key: bytes, count: int) -> int:
    """The partition that Java's clients send a key to."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed that Kafka's clients have agreed on."""
    mixer, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    value = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little")
        word = word * mixer & mask
        word = (word ^ word >> 24) * mixer & mask
        value = value * mixer & mask ^ word
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * mixer & mask
    value = (value ^ value >> 13) * mixer & mask
    return value ^ value >> 15
