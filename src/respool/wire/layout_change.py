"""What our clients and brokers tell each other about topics that were shrunk, in tagged fields.

```
CreatePartitions, the request
    tag 5003, of the request      "", "shrink", "shrink-unkeyed", "retire", "retire-forced"
DescribeTopicPartitions, the reply
    tag 5004, of each topic       {"active": 3, "named": 6}; "": it was never shrunk
    tag 5005, of each partition   where a sealed one's records end; -1: it is not sealed
    tag 5006, of each partition   up to where consumers are shown records; -1: to the end
```
A broker that does not know the first takes the request for a growth, and refuses the smaller number, as Kafka does.
Clients that do not know the others skip them (KIP-482).
"""

import json
from enum import StrEnum
from typing import NamedTuple

# Far above the tags that Kafka uses.
LAYOUT_CHANGE_TAG = 5_003
# The first version with tagged fields is 2; our client sends this one.
LAYOUT_CHANGE_VERSION = 3

LAYOUT_TAG = 5_004
SEALED_END_TAG = 5_005
SHOWN_END_TAG = 5_006


class LayoutChangeKind(StrEnum):
    # A smaller number is refused, unless the topic's settings allow it.
    USUAL = ""
    SHRINK = "shrink"
    SHRINK_UNKEYED = "shrink-unkeyed"
    RETIRE = "retire"
    # Whatever groups have read.
    RETIRE_FORCED = "retire-forced"


class PartitionCounts(NamedTuple):
    """The numbers of partitions of a topic that was shrunk."""

    # They take records: those below this number.
    active: int
    # Clients may name those below.
    named: int


def format_counts(counts: PartitionCounts) -> str:
    return json.dumps(counts._asdict(), separators=(",", ":"))


def parse_counts(text: str) -> PartitionCounts | None:
    """None for a topic that was never shrunk.

    Raises:
        ValueError: the text is not what a broker sends.
    """
    if not text:
        return None
    match json.loads(text):
        case {"active": int(active), "named": int(named)} if 0 < active <= named:
            return PartitionCounts(active, named)
    raise ValueError(f"{text!r} is no layout of partitions")
