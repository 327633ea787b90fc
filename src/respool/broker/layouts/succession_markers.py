"""Transaction markers for a partition of a topic that was shrunk.

The transaction's records may lie in several logs: in the partition's own, and in those of its heirs, under the alias.
Each log in which it is open gets a marker, so that it holds back none of their readers.
"""

from dataclasses import replace
from typing import TypeAlias

from respool.broker.layouts.succession import Succession
from respool.broker.partitions.partition import Partition
from respool.model.ids import Offset
from respool.records.markers import EndTransactionMarker

# The partitions that got markers, and the offsets after them.
Ends: TypeAlias = tuple[tuple[Partition, Offset], ...]


def append_marker_to_all(
    succession: Succession, marker: EndTransactionMarker, *, now_ms: int, needs_newer_epoch: bool
) -> Ends:
    """Append the marker wherever the transaction is open; nowhere open, to the log that would take its records.

    A repetition, after an error in between, skips the logs that have it.

    Raises:
        The exceptions of `Partition.append_marker`.
    """
    producer_id = marker.producer_id
    destination = succession.destination
    found = succession.with_open_transaction(producer_id)
    ends = []
    for one in found or [destination]:
        alias = replace(marker, producer_id=succession.id_in(one, producer_id))
        appended = one.append_marker(alias, now_ms=now_ms, needs_newer_epoch=needs_newer_epoch)
        ends.append((one, Offset(appended.last_offset + 1)))
    if destination not in found:
        # A late batch of the transaction must not begin it again there.
        log = destination.log
        log.producers.void_verifications(succession.id_in(destination, producer_id))
    # A repeated marker is durable only with the first one.
    written = {one for one, _ in ends}
    ends += [(one, one.log.log_end) for one in succession.logs if one not in written]
    return tuple(ends)
