"""A partition's part of a Fetch reply, as readers see it."""

from uuid import UUID

from respool.model.file_range import FileRange
from respool.wire.fetch_reply import FetchedPart


def fetched_part(
    partition: int, *, records: bytes = b"", file_range: FileRange | None = None
) -> FetchedPart:
    return FetchedPart(
        topic=UUID(int=1),
        partition=partition,
        error_code=0,
        high_watermark=9,
        last_stable_offset=9,
        log_start=0,
        aborted=(),
        records=memoryview(records),
        diverging=None,
        leader=None,
        file_range=file_range,
    )
