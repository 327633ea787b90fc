"""How fast a log is compacted: all of it is new, its keys are read and the segments are rewritten.

Measured in this process, without a broker, in CPU seconds of everything: reading, checking, deciding, writing, syncing.
The rate counts the log once, though it is read twice.
"""

import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from bench.broker_process import BENCH_FOLDER
from bench.report import Column, Report, Table, megabytes, millions, percent, seconds
from bench.scale import KB, MB, MESSAGE_BYTES, Scale
from respool.columnar.compiled_scan import CompiledScanner
from respool.drivers.local_disk import LocalDisk
from respool.log.partition_log import CompactionTools, PartitionLog
from respool.model.ids import LeaderEpoch, Offset
from respool.model.topic_config import TopicConfig
from respool.ports.record_scan import RecordScanner
from respool.records.batch import Codec, RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.plain_scan import PlainScanner

CONFIG = TopicConfig.parse(
    {"cleanup.policy": "compact", "segment.bytes": str(16 * MB), "max.message.bytes": str(2 * MB)}
)
KEY_BYTES = 12
# Of a record that is not its key or its value.
OVERHEAD_BYTES = 10
MEMORY_BYTES = 128 * MB

COLUMNS = (
    Column("what", "what"),
    Column("log_bytes", "log MB", megabytes),
    Column("left", "left of it", percent),
    Column("bytes_per_cpu_s", "log MB per CPU-s", megabytes),
    Column("records_per_cpu_s", "records per CPU-s", millions),
    Column("wall_s", "seconds", seconds),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    what: str
    batch_bytes: int
    codec: Codec = Codec.NONE
    # How often each key comes.
    rounds: int = 4
    # Less where it would take too long.
    share: float = 1.0
    is_compiled: bool = True


CASES = (
    Case(what="16 KB batches, each key 4 times", batch_bytes=16 * KB),
    Case(what="1 MB batches, each key 4 times", batch_bytes=1 * MB),
    Case(what="16 KB batches, each key once: nothing goes", batch_bytes=16 * KB, rounds=1),
    Case(what="16 KB batches in lz4", batch_bytes=16 * KB, codec=Codec.LZ4),
    Case(what="16 KB batches in zstd", batch_bytes=16 * KB, codec=Codec.ZSTD),
    Case(what="one record a batch", batch_bytes=1, share=0.2),
    Case(
        what="16 KB batches, without compiled kernels",
        batch_bytes=16 * KB,
        share=0.1,
        is_compiled=False,
    ),
)


def run(scale: Scale, report: Report) -> None:
    report.progress("compaction: reading keys, rewriting segments")
    compiled = CompiledScanner()
    began = time.process_time()
    compiled.prepare()
    prepare_s = time.process_time() - began
    table = Table(
        "compaction",
        f"Compaction of {MESSAGE_BYTES}-byte records with {KEY_BYTES}-byte keys",
        COLUMNS,
    )
    log_bytes = scale.fetch_log_bytes // 4
    for case in CASES:
        report.progress(f"compaction: {case.what}")
        scanner = compiled if case.is_compiled else PlainScanner()
        table.rows.append(_measure(case, int(log_bytes * case.share), scanner))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KB
    table.notes += [
        f"Loading the compiled kernels took {prepare_s:.1f} CPU-s; the first time on a machine they are compiled.",
        f"This process grew to {peak / MB:,.0f} MB, the records to be written and numba among it.",
        "Target: 100 MB per CPU-second for 100-byte records.",
    ]
    report.add(table)


def _measure(case: Case, log_bytes: int, scanner: RecordScanner) -> dict[str, Any]:
    with _filled_log(case, log_bytes) as log:
        tools = CompactionTools(
            scanner=scanner, memory_bytes_max=MEMORY_BYTES, secret=b"sixteen bytes: !"
        )
        records_per_byte = log.log_end / log.size_bytes
        began, began_cpu = time.perf_counter(), time.process_time()
        compaction = log.begin_compaction(now_ms=0, bound=log.log_end, tools=tools)
        assert compaction is not None
        while not compaction.is_complete:
            compaction.run()
            log.finish_compaction(compaction)
        cpu_s, wall_s = time.process_time() - began_cpu, time.perf_counter() - began
        counts = compaction.counts
    return {
        "what": case.what,
        "log_bytes": counts.bytes_before,
        "left": counts.bytes_after / counts.bytes_before,
        "bytes_per_cpu_s": counts.bytes_before / cpu_s,
        "records_per_cpu_s": records_per_byte * counts.bytes_before / cpu_s,
        "wall_s": wall_s,
    }


@contextmanager
def _filled_log(case: Case, log_bytes: int) -> Iterator[PartitionLog]:
    folder = BENCH_FOLDER / "compaction"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        log = PartitionLog.open(
            disk=LocalDisk(str(folder)),
            folder="bench-0",
            config=CONFIG,
            now_ms=0,
            log_start=Offset(0),
            recovery_point=Offset(0),
            clean=False,
            producer_expiration_ms=1,
        )
        batches = list(_batches(case, log_bytes // case.rounds))
        for _ in range(case.rounds):
            for batch in batches:
                log.append(batch, leader_epoch=LeaderEpoch(0), now_ms=0)
        pending = log.begin_sync()
        assert pending is not None
        pending.run()
        log.finish_sync(pending)
        yield log
    finally:
        shutil.rmtree(folder)


def _batches(case: Case, size: int) -> Iterator[RecordBatch]:
    """Batches with this many bytes together, before compression; every key is in them once."""
    per_batch = max(1, case.batch_bytes // (MESSAGE_BYTES + OVERHEAD_BYTES))
    rng = Random(1)
    count = size // (per_batch * (MESSAGE_BYTES + OVERHEAD_BYTES) + 61)
    # Half of a value can be compressed.
    text = b"." * ((MESSAGE_BYTES - KEY_BYTES) // 2)
    for number in range(count):
        data = build_batch(
            [
                NewRecord(
                    key=b"%0*d" % (KEY_BYTES, number * per_batch + each),
                    value=text + rng.randbytes(MESSAGE_BYTES - KEY_BYTES - len(text)),
                    timestamp_ms=1_700_000_000_000 + each,
                )
                for each in range(per_batch)
            ],
            codec=case.codec,
        )
        yield RecordBatch(read_header(data), data)
