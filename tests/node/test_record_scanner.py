import logging
import sys

import pytest

from respool.columnar.compiled_scan import CompiledKeyOffsets
from respool.node import record_scanner
from respool.node.record_scanner import ScannerOnDemand
from respool.ports.record_scan import KeylessRecords
from respool.records.batch import HEADER_BYTES
from respool.records.build import NewRecord, build_batch
from respool.records.plain_scan import PlainKeyOffsets, PlainScanner

RECORDS = build_batch([NewRecord(key=b"a"), NewRecord(key=None)])[HEADER_BYTES:]


def find_keyless(scanner: ScannerOnDemand, records: bytes = RECORDS) -> KeylessRecords | None:
    return scanner.find_keyless(records, record_count=2, last_offset_delta=1)


def test_keys_are_looked_at_before_anything_is_loaded() -> None:
    scanner = ScannerOnDemand()
    assert find_keyless(scanner) == (1, [1])
    assert find_keyless(scanner, b"?") is None
    scanner.prepare()
    assert isinstance(scanner._scanner, PlainScanner)


def test_a_compaction_loads_the_kernels() -> None:
    scanner = ScannerOnDemand()
    offsets = scanner.key_offsets(bytes_max=1000, keys_max=10, secret=bytes(16))
    assert isinstance(offsets, CompiledKeyOffsets)
    assert scanner.quick_bytes_max > PlainScanner.quick_bytes_max
    assert find_keyless(scanner) == (1, [1])


def test_much_looking_at_keys_loads_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_scanner, "WORTH_LOADING_BYTES", 2 * len(RECORDS))
    scanner = ScannerOnDemand()
    find_keyless(scanner)
    scanner.prepare()
    assert isinstance(scanner._scanner, PlainScanner)
    find_keyless(scanner)
    scanner.prepare()
    assert not isinstance(scanner._scanner, PlainScanner)


def test_without_the_kernels_it_says_so_once_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "respool.columnar.compiled_scan", None)
    scanner = ScannerOnDemand()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            offsets = scanner.key_offsets(bytes_max=1000, keys_max=10, secret=bytes(16))
            assert isinstance(offsets, PlainKeyOffsets)
    assert caplog.text.count('pip install ".[arrow]"') == 1
