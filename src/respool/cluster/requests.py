"""What a request for many partitions comes to: writes, and why some of it is refused."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from respool.cluster.guarded_write import GuardedWrite
from respool.model.errors import RequestError
from respool.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    writes: list[GuardedWrite]
    # The other partitions asked for are granted once the writes have succeeded.
    refused: Mapping[TopicPartition, RequestError] = field(default_factory=dict)
