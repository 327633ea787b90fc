"""What a mirror topic takes: batches with offsets of their own, from `respool mirror` and from nobody else.

See `records/mirrored.py` for how they look, and docs/adr/0012-mirroring.md for why.
"""

from respool.model.errors import InvalidRecord, OutOfOrderSequence, PolicyViolation, RequestError
from respool.model.ids import Offset, TopicPartition
from respool.records.mirrored import MirroredBatches, read_mirrored


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


def mirror_refusal(name: TopicPartition) -> RequestError:
    return PolicyViolation(
        f"{name.topic} is a mirror (respool.mirror=true): respool mirror alone writes it, with the messages of "
        f"another cluster. To write to it here instead: respool mirror promote {name.topic}"
    )


def no_mirror(name: TopicPartition) -> RequestError:
    return PolicyViolation(
        f"{name.topic} is no mirror (respool.mirror=false): it gives out offsets itself"
    )
