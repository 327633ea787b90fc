from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from records.record_examples import BUILDERS, CODECS, NOON_MS, THREE, batch_of, new_records
from respool.records.batch import LENGTH_BYTES, STAMP_BYTES, Codec
from respool.records.build import NewRecord, build_batch


def without_leader_epoch(data: bytes) -> bytes:
    """Some clients leave -1 there, others 0; the leader overwrites it and the checksum leaves it out."""
    return data[:LENGTH_BYTES] + data[STAMP_BYTES:]


@pytest.mark.parametrize("library", BUILDERS)
@given(records=new_records)
def test_an_uncompressed_batch_is_byte_for_byte_what_clients_send(
    library: str, records: Sequence[NewRecord]
) -> None:
    assert without_leader_epoch(build_batch(records)) == without_leader_epoch(
        BUILDERS[library](records)
    )


@pytest.mark.parametrize("library", BUILDERS)
def test_a_transactional_batch_is_byte_for_byte_what_clients_send(library: str) -> None:
    fields: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 12}
    theirs = BUILDERS[library](THREE, is_transactional=True, **fields)
    ours = build_batch(THREE, is_transactional=True, **fields)
    assert without_leader_epoch(ours) == without_leader_epoch(theirs)


def test_the_header_carries_what_was_asked_for() -> None:
    header = batch_of(
        build_batch(
            THREE,
            codec=Codec.ZSTD,
            base_offset=40,
            leader_epoch=5,
            is_control=True,
            log_append_time=True,
            max_timestamp=NOON_MS + 1000,
        )
    ).header
    assert (header.base_offset, header.last_offset, header.record_count) == (40, 42, 3)
    assert header.leader_epoch == 5
    assert header.is_control
    assert header.is_log_append_time
    assert not header.is_transactional
    assert not header.has_producer_id
    assert (header.base_timestamp, header.max_timestamp) == (NOON_MS, NOON_MS + 1000)


def test_the_max_timestamp_is_the_largest_not_the_last() -> None:
    assert batch_of(build_batch(THREE)).header.max_timestamp == NOON_MS + 5


@pytest.mark.parametrize("codec", CODECS)
def test_the_codec_is_named_in_the_attributes(codec: Codec) -> None:
    assert batch_of(build_batch(THREE, codec=codec)).header.codec_bits == codec


def test_a_batch_of_nothing_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="at least one record"):
        build_batch([])
