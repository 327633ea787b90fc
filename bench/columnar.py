"""How fast record batches become Arrow columns and come back, in this process and without a broker, on one core.

In CPU seconds, with checksums. Beside each figure stands how much slower plain Python reads the same bytes; below
them the lower bound: the checksum, and one copy of the values.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from bench.report import Column, Report, Table, megabytes, millions, ratio
from bench.scale import MESSAGE_BYTES, Scale
from respool.columnar.decode_columns import decode
from respool.columnar.encode_columns import encode
from respool.columnar.murmur import murmur2_partitions
from respool.columnar.row_buffers import RowBuffers
from respool.records.batch import Codec, RecordBatch, read_header
from respool.records.record import read_records

RECORDS = 200_000
PER_BATCH = 10_000
NOON_MS = 1_700_000_000_000
LIMIT = 1 << 30

COLUMNS = (
    Column("what", "what"),
    Column("batch_records", "records a batch", str),
    Column("decoded_per_cpu_s", "decoded per CPU-s", millions),
    Column("decoded_bytes_per_cpu_s", "MB per CPU-s", megabytes),
    Column("encoded_per_cpu_s", "encoded per CPU-s", millions),
    Column("of_plain", "decoded, to plain Python", ratio),
)

FIRST_USE = """
import time
began, began_cpu = time.perf_counter(), time.process_time()
import pyarrow as pa
from respool.columnar.decode_columns import decode
from respool.columnar.encode_columns import encode
from respool.records.batch import Codec
imported = time.process_time()
batch = pa.record_batch({"key": [b"k"], "value": [None], "timestamp": [1],
    "headers": [[{"key": "h", "value": b"v"}]]})
data = encode(batch, None, codec=Codec.NONE, timestamp_ms=0, stamp=None)
assert decode(data, begin=0).rows == 1
print(time.perf_counter() - began, time.process_time() - began_cpu, imported - began_cpu)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    what: str
    codec: Codec = Codec.NONE
    level: int | None = None
    per_batch: int = PER_BATCH
    columns: tuple[str, ...] = ("value",)
    has_key: bool = False
    has_headers: bool = False


EVERYTHING = ("key", "value", "offset", "timestamp", "timestamp_type", "headers")
CASES = (
    Case(what="values"),
    Case(what="key, value, offset, time", columns=EVERYTHING[:4], has_key=True),
    Case(what="the same and a header", columns=EVERYTHING, has_key=True, has_headers=True),
    Case(what="offsets alone", columns=("offset",)),
    Case(what="values in lz4", codec=Codec.LZ4),
    Case(what="values in zstd, level 1", codec=Codec.ZSTD, level=1),
    Case(what="values in zstd, level 3 (usual)", codec=Codec.ZSTD),
    Case(what="values in snappy", codec=Codec.SNAPPY),
    Case(what="values in gzip", codec=Codec.GZIP),
    Case(what="values, 16 KB batches", per_batch=150),
    Case(what="values, 16 KB batches in lz4", per_batch=150, codec=Codec.LZ4),
    Case(what="values, one a batch", per_batch=1),
)


def run(scale: Scale, report: Report) -> None:
    table = Table(
        "columnar", f"Record batches to Arrow and back, {MESSAGE_BYTES}-byte values", COLUMNS
    )
    for case in CASES:
        report.progress(f"columnar: {case.what}")
        table.rows.append(_measure(case, scale))
    table.notes += [
        _floor_note(scale),
        _murmur_note(scale),
        *_first_use_notes(),
        "Target: 10 M/s decoded and encoded uncompressed, 3 M/s with lz4 and zstd; first use under 1 s.",
    ]
    report.add(table)


def _measure(case: Case, scale: Scale) -> dict[str, Any]:
    rows = _rows(case)
    records = rows.num_rows

    def encode_all() -> list[bytes]:
        source = RowBuffers.of(rows)
        return [
            encode(
                source,
                slice(begin, begin + case.per_batch),
                codec=case.codec,
                level=case.level,
                timestamp_ms=NOON_MS,
                stamp=None,
            )
            for begin in range(0, records, case.per_batch)
        ]

    batches = encode_all()
    data = b"".join(
        (number * case.per_batch).to_bytes(8) + batch[8:] for number, batch in enumerate(batches)
    )
    decoded = decode(data, begin=0, columns=case.columns)
    assert decoded.rows == records
    decode_s = _cpu_s(scale, lambda: decode(data, begin=0, columns=case.columns))
    encode_s = _cpu_s(scale, encode_all)
    plain = batches[: max(1, PER_BATCH // case.per_batch)]
    plain_s = _cpu_s(scale, lambda: [_read_plain(batch) for batch in plain], runs_max=3)
    return {
        "what": case.what,
        "batch_records": case.per_batch,
        "decoded_per_cpu_s": records / decode_s,
        "decoded_bytes_per_cpu_s": len(data) / decode_s,
        "encoded_per_cpu_s": records / encode_s,
        "of_plain": (records / decode_s) / (len(plain) * case.per_batch / plain_s),
    }


def _read_plain(data: bytes) -> int:
    return len(read_records(RecordBatch(read_header(data), data), limit=LIMIT))


def _rows(case: Case) -> pa.RecordBatch:
    """Half of a value can be compressed."""
    rng = Random(1)
    records = RECORDS if case.per_batch > 1 else RECORDS // 10
    text = b"." * (MESSAGE_BYTES // 2)
    columns: dict[str, pa.Array] = {
        "value": pa.array(
            [text + rng.randbytes(MESSAGE_BYTES - len(text)) for _ in range(records)]
        ),
        "timestamp": pa.array(NOON_MS + np.arange(records)),
    }
    if case.has_key:
        columns["key"] = pa.array([b"%012d" % number for number in range(records)])
    if case.has_headers:
        columns["headers"] = pa.array([[{"key": "tag", "value": b"blue"}]] * records)
    return pa.record_batch(columns)


def _floor_note(scale: Scale) -> str:
    """What nobody can do without: look at each byte for the checksum, and copy the values."""
    data = bytes(RECORDS * MESSAGE_BYTES)
    seconds = _cpu_s(scale, lambda: (crc32c(data), bytearray(data)))
    return (
        f"Floor: checksum and one copy of as many bytes, {millions(RECORDS / seconds)} values "
        "per CPU-s."
    )


def _murmur_note(scale: Scale) -> str:
    keys = pa.array([b"%012d" % number for number in range(RECORDS)])
    seconds = _cpu_s(scale, lambda: murmur2_partitions(keys, 12))
    return (
        f"Routing: {millions(RECORDS / seconds)} keys of 12 bytes per CPU-s find their partition."
    )


def _first_use_notes() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        cold = _first_use({"NUMBA_CACHE_DIR": folder})
        warm = min(
            (_first_use({"NUMBA_CACHE_DIR": folder}) for _ in range(3)), key=lambda one: one[1]
        )
    wall_s, cpu_s, imports_s = warm
    first = (
        f"First use in a new process, import to decoded record: {wall_s:.2f} s ({cpu_s:.2f} CPU-s, "
    )
    return [
        first + f"{imports_s:.2f} of them imports).",
        f"The first time on a machine, kernels are compiled: {cold[0]:.1f} s ({cold[1]:.1f} CPU-s).",
    ]


def _first_use(environment: dict[str, str]) -> list[float]:
    """Seconds, CPU seconds, and CPU seconds of imports."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE],
        env=os.environ | environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return [float(word) for word in done.stdout.split()]


def _cpu_s(scale: Scale, work: Callable[[], object], runs_max: int = 1000) -> float:
    """CPU seconds of one run: the best of as many as there is time for."""
    work()
    best = float("inf")
    deadline = time.perf_counter() + scale.seconds / 2
    for _ in range(runs_max):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
        if time.perf_counter() > deadline:
            break
    return best
