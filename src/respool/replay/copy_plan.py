"""What a replay copies, and where to. The plan is fixed and recorded at the start, and does not change on resume. Pure.

It has a span of offsets for each source partition, and a target partition for each message: the same number if both
topics have equally many partitions, otherwise by the hash of its key, as Java's clients do.

Each source partition has its own producer id. A target partition accepts a batch of that id only with the next sequence
number. So a replay cannot duplicate its own messages: batches that a killed run had in flight, and batches of a second
concurrent run, are rejected or recognized as duplicates.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple


class Span(NamedTuple):
    """Offsets from `start` (inclusive) to `stop` (exclusive)."""

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
    # By source partition, as `producers` is too.
    spans: Mapping[int, Span]
    producers: Mapping[int, ProducerId]
    # The source's partition count at the start; partitions added later, on either side, are not used.
    source_count: int
    # The log end of each target partition at the start: all copies are beyond it.
    target_ends: Mapping[int, int]

    @property
    def messages(self) -> int:
        return sum(span.messages for span in self.spans.values())

    @property
    def keeps_partitions(self) -> bool:
        return self.source_count == len(self.target_ends)

    def targets_of(self, source: int) -> Iterable[int]:
        """The target partitions that may receive messages of this source partition."""
        return (source,) if self.keeps_partitions else self.target_ends

    def target_for(self, source: int, key: bytes | None) -> int:
        """The target partition of a message; a pure function of plan, partition and key."""
        if self.keeps_partitions:
            return source
        if key is None:
            # Messages without a key keep their order, as messages with the same key do.
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


@lru_cache(maxsize=65_536)
def partition_for_key(key: bytes, count: int) -> int:
    """The partition that Java's clients send a key to."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed of Kafka's clients."""
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
