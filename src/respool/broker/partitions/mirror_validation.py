"""What a mirror topic takes: batches with offsets of their own, from `respool mirror` and from nobody else.

See `records/mirrored_batches.py` for how they look, and docs/adr/0012-mirroring.md for why.
"""

from respool.model.errors import InvalidRecord, OutOfOrderSequence, PolicyViolation, RequestError
from respool.model.ids import Offset, TopicPartition
from respool.records.batch import HEADER_BYTES, BatchHeader, read_header
from respool.records.mirrored_batches import MirroredBatches, read_mirrored
from respool.records.validate import walk_batches


def admit_mirrored(records: bytes | None, name: TopicPartition) -> MirroredBatches:
    """
    Raises:
        PolicyViolation: it is an ordinary producer's.
        InvalidRecord, CorruptMessage: the mirror sent what it should not.
    """
    copied = None if records is None else read_mirrored(records)
    if copied is None:
        raise mirror_refusal(name)
    return copied


def check_continues(
    copied: MirroredBatches, log_end: Offset, name: TopicPartition, *, is_empty: bool
) -> bool:
    """Whether there is something new among them; the new ones go on exactly where the log ends.

    One that holds no batch may have been told to start inside of one, and lost it with the power: it gets that whole.

    Raises:
        OutOfOrderSequence: something before them is missing; the mirror looks for the end and goes on there.
        InvalidRecord: the log ends inside a batch, so that it holds something else than the source.
    """
    if copied.end <= log_end:
        return False
    if copied.base_offset > log_end:
        raise OutOfOrderSequence(
            f"{name}: a batch begins at offset {copied.base_offset}, and {log_end} comes next"
        )
    if log_end not in copied.bases and not is_empty:
        raise InvalidRecord(f"{name} ends at offset {log_end}, where the source has no batch's end")
    return True


def check_same(copied: MirroredBatches, here: Offset, stored: bytes, name: TopicPartition) -> None:
    """That the last one which is in the log already is what the log has there, for then the ones before are, too.

    `here` is where it ends, `stored` begins with the log's batch at its last offset.

    Raises:
        InvalidRecord: the log has something else: the source lost it, and has written anew since.
    """
    sent = next(header for _, header in walk_batches(copied.data) if header.next_offset == here)
    if len(stored) < HEADER_BYTES:
        return
    has = read_header(stored)
    if has.base_offset >= here or not (_is_whole(has) and _is_whole(sent)):
        # One of them stands for what was deleted, or was compacted since: nothing can be told from it.
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
        f"{name.topic} is a mirror (respool.mirror=true): respool mirror alone writes it, with the messages of "
        f"another cluster. To write to it here instead: respool mirror promote {name.topic}"
    )


def no_mirror(name: TopicPartition) -> RequestError:
    return PolicyViolation(
        f"{name.topic} is no mirror (respool.mirror=false): it gives out offsets itself"
    )
