"""Producer ids for batches that are appended to another partition than the producer named.

A producer has a sequence for each partition that it knows. If one log has batches for several of them, each needs a
producer id of its own there. It follows from what the batch says, so it needs no state, and replicas agree on it:

```
 bit 63   62   61 ... 0
      0    1   SHA-256 of topic id, named partition, producer id: its first 62 bits
```
Ids that brokers hand out end far below 2^62.
"""

from hashlib import sha256
from struct import Struct
from uuid import UUID

from respool.records.batch import RecordBatch, records_of, seal

ALIAS_BIT = 1 << 62
_NAMED = Struct(">16siq")


def producer_alias(topic_id: UUID, partition: int, producer_id: int) -> int:
    """The producer id of these batches in the log of another partition of the topic."""
    digest = sha256(_NAMED.pack(topic_id.bytes, partition, producer_id)).digest()
    return ALIAS_BIT | int.from_bytes(digest[:8]) >> 2


def with_producer_id(batch: RecordBatch, producer_id: int) -> RecordBatch:
    """The batch with this producer id in its header, and a new checksum."""
    return seal(batch.header._replace(producer_id=producer_id), records_of(batch))
