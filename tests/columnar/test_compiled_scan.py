import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from records.record_examples import FUZZ_EXAMPLES
from records.scan_contract import SECRET, ScannerContract, keyed, section_of
from respool.columnar.compiled_scan import CompiledScanner
from respool.ports.record_scan import Section
from respool.records.build import NewRecord
from respool.records.plain_scan import PlainScanner

SCANNER = CompiledScanner()


class TestCompiledScanner(ScannerContract):
    scanner = SCANNER


def both_say_the_same(data: bytes, section: Section) -> None:
    """Of any bytes: whether they are records, which lack a key, which stay, and what is left of them."""
    told = []
    for scanner in (PlainScanner(), SCANNER):
        keyless = scanner.find_keyless(
            data[section.begin : section.end],
            record_count=section.record_count,
            last_offset_delta=section.last_offset_delta,
        )
        offsets = scanner.key_offsets(bytes_max=1 << 20, keys_max=100, secret=SECRET)
        full_at = offsets.add(data, [section], begin=section.base_offset + 1)
        filtered = offsets.filter_records(data, [section], end=section.base_offset + 3)
        kept = (
            [
                bytes(filtered.retained_records(0, timestamp_shift=shift))
                for shift in (0, 5, -(2**62))
            ]
            if filtered.summaries[0].retained >= 0
            else None
        )
        told.append((keyless, full_at, filtered.summaries, kept))
    assert told[0] == told[1]


@pytest.mark.long
@given(
    keys=st.lists(st.none() | st.binary(max_size=2), max_size=5),
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
    count=st.integers(-1, 2),
    last=st.integers(-2, 2),
    cut=st.integers(0, 2),
)
@settings(max_examples=FUZZ_EXAMPLES)
def test_of_damaged_records_it_says_what_plain_python_says(
    keys: list[bytes | None],
    flips: list[tuple[int, int]],
    count: int,
    last: int,
    cut: int,
) -> None:
    records = [NewRecord(key=key, value=b"v" if key else None, timestamp_ms=1) for key in keys]
    body, section = section_of(records, base_offset=7, drop_tombstones=len(keys) % 2 == 1)
    data = bytearray(b"xx" + body + b"yy")
    for position, value in flips:
        data[position % len(data)] = value
    section = section._replace(
        begin=2,
        end=2 + len(body) - min(cut, len(body)),
        record_count=section.record_count + count,
        last_offset_delta=section.last_offset_delta + last,
    )
    both_say_the_same(bytes(data), section)


@pytest.mark.long
@given(data=st.binary(max_size=60), count=st.integers(-3, 9), last=st.integers(-3, 2**31 - 1))
@settings(max_examples=FUZZ_EXAMPLES)
def test_of_any_bytes_it_says_what_plain_python_says(data: bytes, count: int, last: int) -> None:
    both_say_the_same(data, Section(0, len(data), count, 0, last))


@pytest.mark.parametrize("announced", [2**31 - 1, 2**62])
def test_an_announced_number_of_records_takes_no_memory(announced: int) -> None:
    data, section = section_of([keyed(b"a")])
    section = section._replace(record_count=announced, last_offset_delta=2**31 - 1)
    offsets = SCANNER.key_offsets(bytes_max=1 << 20, keys_max=100, secret=SECRET)
    assert offsets.add(data, [section], begin=0) is None
    assert offsets.filter_records(data, [section], end=1).summaries[0].retained == -1
    assert len(offsets._table.rows) < 100


def test_the_map_takes_no_more_memory_than_it_may() -> None:
    for bytes_max in (10_000, 1 << 20, 100 << 20):
        offsets = SCANNER.key_offsets(bytes_max=bytes_max, keys_max=10**12, secret=SECRET)
        assert bytes_max / 2 < offsets._slots.nbytes <= bytes_max
    small = SCANNER.key_offsets(bytes_max=100 << 20, keys_max=1000, secret=SECRET)
    assert small._slots.nbytes < 100_000
