"""Records and batches the tests of this folder share, and the two other libraries' ways to write and read them."""

import os
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka.record import default_records as aiokafka_records
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python_records

from respool.records.batch import Codec, RecordBatch, read_header, records_of, seal
from respool.records.build import NewRecord

# How often the fuzz tests try; `make fuzz` has more patience.
FUZZ_EXAMPLES = 20_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 200

LIMIT = 1 << 20
NOON_MS = 1_700_000_000_000

CODECS = list(Codec)
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]

THREE = (
    NewRecord(key=b"ride-1", value=b"started " * 20, timestamp_ms=NOON_MS),
    NewRecord(key=None, value=b"moved " * 20, timestamp_ms=NOON_MS + 5, headers=(("tag", b"x"),)),
    NewRecord(
        key=b"ride-1", value=None, timestamp_ms=NOON_MS + 3, headers=(("a", None), ("a", b""))
    ),
)

_bytes_or_none = st.none() | st.binary(max_size=40)
_header_keys = st.text(max_size=8)
new_records = st.lists(
    st.builds(
        NewRecord,
        key=_bytes_or_none,
        value=_bytes_or_none | st.binary(max_size=3).map(lambda part: part * 100),
        timestamp_ms=st.integers(0, 2**42),
        headers=st.lists(st.tuples(_header_keys, _bytes_or_none), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)

# A builder takes records, codec and producer fields; a reader gives back rows of plain values.
Builder = Callable[..., bytes]
Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def batch_of(data: bytes) -> RecordBatch:
    return RecordBatch(read_header(data), data)


def changed(batch: RecordBatch, **fields: Any) -> RecordBatch:
    """The batch with other header fields, and a checksum that fits them."""
    return seal(batch.header._replace(**fields), records_of(batch))


def rows_of(records: Sequence[NewRecord], *, base_offset: int = 0) -> list[Row]:
    return [
        (base_offset + delta, record.timestamp_ms, record.key, record.value, list(record.headers))
        for delta, record in enumerate(records)
    ]


def _build_with(library: Any) -> Builder:
    def build(
        records: Sequence[NewRecord],
        *,
        codec: Codec = Codec.NONE,
        is_transactional: bool = False,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
    ) -> bytes:
        builder = library.DefaultRecordBatchBuilder(
            2, int(codec), is_transactional, producer_id, producer_epoch, base_sequence, 1 << 30
        )
        for offset, record in enumerate(records):
            added = builder.append(
                offset, record.timestamp_ms, record.key, record.value, list(record.headers)
            )
            assert added is not None
        return bytes(builder.build())

    return build


def _read_with(library: Any) -> Callable[[bytes], list[Row]]:
    def read(data: bytes) -> list[Row]:
        batch = library.DefaultRecordBatch(data)
        assert batch.validate_crc()
        return [
            (record.offset, record.timestamp, record.key, record.value, list(record.headers))
            for record in batch
        ]

    return read


BUILDERS = {
    "kafka-python": _build_with(kafka_python_records),
    "aiokafka": _build_with(aiokafka_records),
}
READERS = {
    "kafka-python": _read_with(kafka_python_records),
    "aiokafka": _read_with(aiokafka_records),
}
