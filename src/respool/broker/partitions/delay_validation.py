"""Validation of produced batches in topics with `respool.delay`: every record's delay headers must be readable.

Most batches have none, which a search for the names' common prefix tells. Otherwise all records are read, at once if
they are few, else off the event loop.
"""

from respool.model.errors import InvalidRecord, MessageTooLarge, PolicyViolation, RecordsRefused
from respool.model.quantities import counted
from respool.model.topic_config import TopicConfig
from respool.records.batch import Codec, RecordBatch
from respool.timing.delay_records import check_produced_records, has_delay_headers
from respool.timing.due_header import DelayRules

# Searching as many bytes, or reading as many records, takes well below a millisecond.
SEARCHED_QUICKLY_MAX = 1024 * 1024
DECOMPRESSED_QUICKLY_MAX = 64 * 1024
READ_QUICKLY_MAX = 16 * 1024


def check_delays_quickly(batch: RecordBatch, config: TopicConfig, *, room: int) -> bool:
    """Run `check_delays` if the topic needs it and that is quick. Return False if it is still to be done.

    Raises:
        As `check_delays`.
    """
    if not config.respool_delay:
        return True
    is_plain = batch.header.codec_bits == Codec.NONE
    limit = SEARCHED_QUICKLY_MAX if is_plain else DECOMPRESSED_QUICKLY_MAX
    if batch.header.size > limit:
        return False
    try:
        if not has_delay_headers(batch, limit=limit):
            return True
        if batch.header.size > READ_QUICKLY_MAX:
            return False
        check_delays(batch, config, room=room, limit=READ_QUICKLY_MAX)
    except MessageTooLarge:
        # Small compressed, but too large uncompressed.
        return False
    return True


def check_delays(batch: RecordBatch, config: TopicConfig, *, room: int, limit: int) -> None:
    """Refuse records whose delay headers cannot be read, and more records than may wait.

    Raises:
        InvalidRecord: records are malformed, each named with the reason.
        PolicyViolation: `room` more records may wait, and the batch has more.
        CorruptMessage: the batch cannot be decompressed or read.
        MessageTooLarge: the batch is larger than `limit` bytes uncompressed.
    """
    rules = DelayRules(
        levels_ms=config.respool_delay_levels.delays_ms, max_ms=config.respool_delay_max_ms
    )
    refused, waiting = check_produced_records(batch, rules, limit=limit)
    if refused:
        number, reason = refused[0]
        of = counted(batch.header.record_count, "record")
        raise InvalidRecord(
            f"{len(refused):,} of {of} refused; record {number}: {reason}",
            records=tuple(refused[: RecordsRefused.RECORDS_MAX]),
        )
    if waiting > room:
        raise PolicyViolation(
            f"{counted(waiting, 'delayed record')} more than respool.delay.pending.max = "
            f"{config.respool_delay_pending_max:,} allows"
        )
