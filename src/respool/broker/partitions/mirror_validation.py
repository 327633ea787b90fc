"""Validation of batches produced to a mirror topic: they have offsets, and come from `respool mirror` only.

See `records/mirrored_batches.py` for their format, and docs/adr/0012-mirroring.md for the reasons.
"""

from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.errors import InvalidRecord, OutOfOrderSequence, PolicyViolation, RequestError
from respool.model.ids import Offset, TopicPartition
from respool.records.batch import HEADER_BYTES, BatchHeader, read_header
from respool.records.mirrored_batches import MirroredBatches, read_mirrored
from respool.records.validate import walk_batches


def admit_mirrored(records: bytes | None, name: TopicPartition) -> MirroredBatches:
    """
    Raises:
        PolicyViolation: the request is from an ordinary producer.
        InvalidRecord, CorruptMessage: the mirror sent invalid batches.
    """
    copied = None if records is None else read_mirrored(records)
    if copied is None:
        raise mirror_refusal(name)
    return copied


def check_mirrored(copied: MirroredBatches, log: PartitionLog, name: TopicPartition) -> bool:
    """Return whether some of the batches are new, after checking that the log has the others.

    Raises:
        StorageError: the log cannot be read.
        OutOfOrderSequence, InvalidRecord: see the checks below.
    """
    is_new = check_continues(copied, log.log_end, name, is_empty=log.is_empty)
    here = min(copied.end, log.log_end)
    if here > max(copied.base_offset, log.log_start):
        last = ReadSpec(Offset(here - 1), max_offset=log.log_end, bytes_max=0, with_empty=True)
        check_same(copied, here, bytes(log.read(last)), name)
    return is_new


def check_continues(
    copied: MirroredBatches, log_end: Offset, name: TopicPartition, *, is_empty: bool
) -> bool:
    """Return whether some of the batches are new; the new ones must continue the log without a gap.

    An empty log may start inside a batch that it lost in a power cut: it then accepts that batch as a whole.

    Raises:
        OutOfOrderSequence: batches before these are missing; the mirror looks up the log end and continues there.
        InvalidRecord: the log ends inside a batch of the source, so it differs from the source.
    """
    if copied.end <= log_end:
        return False
    if copied.base_offset > log_end:
        raise OutOfOrderSequence(
            f"{name}: a batch begins at offset {copied.base_offset}, but the log ends at {log_end}"
        )
    if log_end not in copied.bases and not is_empty:
        raise InvalidRecord(
            f"{name} ends at offset {log_end}, which is inside a batch of the source"
        )
    return True


def check_same(copied: MirroredBatches, here: Offset, stored: bytes, name: TopicPartition) -> None:
    """Check that the last of the batches that the log already has equals the log's copy; then the earlier ones do, too.

    `here` is the batch's next offset; `stored` begins with the log's batch at the offset before it.

    Raises:
        InvalidRecord: they differ: the source lost its batch and has written others since.
    """
    sent = next(header for _, header in walk_batches(copied.data) if header.next_offset == here)
    if len(stored) < HEADER_BYTES:
        return
    has = read_header(stored)
    if has.base_offset >= here or not (_is_whole(has) and _is_whole(sent)):
        # One of the two was deleted or compacted since, so they cannot be compared.
        return
    if (has.base_offset, has.crc) != (sent.base_offset, sent.crc):
        raise InvalidRecord(
            f"{name} has a batch from offset {has.base_offset} to {has.last_offset} with checksum {has.crc}, where the "
            f"source has one from {sent.base_offset} to {sent.last_offset} with checksum {sent.crc}"
        )


def _is_whole(header: BatchHeader) -> bool:
    return header.record_count == header.last_offset_delta + 1 and not header.has_delete_horizon


def mirror_refusal(name: TopicPartition) -> RequestError:
    return PolicyViolation(
        f"{name.topic} is a mirror (respool.mirror=true): only respool mirror writes to it, with the messages of "
        f"another cluster. To write to it here instead: respool mirror promote {name.topic}"
    )


def no_mirror(name: TopicPartition) -> RequestError:
    return PolicyViolation(
        f"{name.topic} is not a mirror (respool.mirror=false): it assigns offsets itself"
    )
