"""Bytes are spelt out by hand from Kafka's schemas TransactionLogKey and TransactionLogValue."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.coordination.record_bytes import CoordinatorRecordDamaged
from respool.coordination.transactions.transaction_metadata import TransactionMetadata
from respool.coordination.transactions.transaction_records import (
    read_transaction_key,
    read_transaction_value,
    write_transaction_key,
    write_transaction_value,
)
from respool.coordination.transactions.transaction_requests import (
    TransactionState,
    TransactionVersion,
)
from respool.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition

UPDATED_MS, UPDATED = 0x0102030405060708, "0102030405060708"
STARTED_MS, STARTED = 0x0102030405060607, "0102030405060607"
PARTITIONS = (TopicPartition("tö", 7), TopicPartition("tö", 1), TopicPartition("u", 0))
HEAD = "00000000000003e9 0005 0000ea60"


def transaction(**fields: Any) -> TransactionMetadata:
    words: dict[str, Any] = {
        "transactional_id": "id",
        "producer_id": ProducerId(1_001),
        "producer_epoch": 5,
        "timeout_ms": 60_000,
        "state": TransactionState.ONGOING,
        "partitions": PARTITIONS,
        "updated_at_ms": UPDATED_MS,
        "started_at_ms": STARTED_MS,
    }
    return TransactionMetadata(**(words | fields))


def value(text: str) -> bytes:
    return bytes.fromhex(text)


def test_a_key_is_the_transactional_id() -> None:
    assert write_transaction_key("pö") == value("0000 0003 70c3b6")
    assert read_transaction_key(value("0000 0003 70c3b6")) == "pö"


def test_an_open_transaction_of_an_old_client_is_version_0() -> None:
    topics = "00000002  0003 74c3b6 00000002 00000007 00000001  0001 75 00000001 00000000"
    assert write_transaction_value(transaction()) == value(
        f"0000 {HEAD} 01 {topics} {UPDATED} {STARTED}"
    )


def test_an_id_without_a_transaction_has_null_for_partitions() -> None:
    empty = transaction(state=TransactionState.EMPTY, partitions=(), started_at_ms=-1)
    assert write_transaction_value(empty) == value(
        f"0000 {HEAD} 00 ffffffff {UPDATED} ffffffffffffffff"
    )


def test_an_id_whose_transaction_is_over_has_an_empty_array() -> None:
    over = transaction(state=TransactionState.COMPLETE_ABORT, partitions=())
    assert write_transaction_value(over) == value(f"0000 {HEAD} 05 00000000 {UPDATED} {STARTED}")


def test_a_transaction_of_a_new_client_is_version_1_with_a_tag() -> None:
    topics = "03  04 74c3b6 03 00000007 00000001 00  02 75 02 00000000 00"
    assert write_transaction_value(transaction(version=TransactionVersion.V2)) == value(
        f"0001 {HEAD} 01 {topics} {UPDATED} {STARTED} 01 02 02 0002"
    )


def test_producer_ids_before_and_after_are_tags_of_version_1() -> None:
    prepared = transaction(
        state=TransactionState.PREPARE_COMMIT,
        partitions=PARTITIONS[2:],
        previous_producer_id=ProducerId(1_001),
        next_producer_id=ProducerId(1_002),
        version=TransactionVersion.V2,
    )
    tags = "03  00 08 00000000000003e9  01 08 00000000000003ea  02 02 0002"
    assert write_transaction_value(prepared) == value(
        f"0001 {HEAD} 02 02 02 75 02 00000000 00 {UPDATED} {STARTED} {tags}"
    )


def test_an_id_that_can_be_repeated_for_is_version_1_without_a_version_tag() -> None:
    empty = transaction(
        state=TransactionState.EMPTY,
        partitions=(),
        started_at_ms=-1,
        previous_producer_id=ProducerId(1_001),
    )
    assert write_transaction_value(empty) == value(
        f"0001 {HEAD} 00 00 {UPDATED} ffffffffffffffff 01 00 08 00000000000003e9"
    )


producer_ids = st.integers(0, 2**63 - 1).map(ProducerId)
partitions = st.lists(
    st.builds(TopicPartition, st.text("abö", min_size=1, max_size=200), st.integers(0, 2**31 - 1)),
    unique=True,
    max_size=40,
)


@given(
    state=st.sampled_from(TransactionState),
    partitions=partitions,
    producer_id=producer_ids,
    epoch=st.integers(0, 2**15 - 1),
    previous=st.just(NO_PRODUCER_ID) | producer_ids,
    following=st.just(NO_PRODUCER_ID) | producer_ids,
    version=st.sampled_from(TransactionVersion),
)
def test_what_is_written_is_read_again(
    *,
    state: TransactionState,
    partitions: list[TopicPartition],
    producer_id: ProducerId,
    epoch: int,
    previous: ProducerId,
    following: ProducerId,
    version: TransactionVersion,
) -> None:
    if state is TransactionState.EMPTY:
        partitions = []
    one = transaction(
        state=state,
        partitions=tuple(partitions),
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=previous,
        next_producer_id=following,
        version=version,
    )
    read = read_transaction_value("id", write_transaction_value(one))
    # Those of one topic stand together in a record.
    topics = list(dict.fromkeys(topic for topic, _ in partitions))
    grouped = sorted(partitions, key=lambda partition: topics.index(partition.topic))
    assert read == one._replace(partitions=tuple(grouped))


def test_tags_that_we_do_not_know_are_passed_over() -> None:
    read = read_transaction_value(
        "id", value(f"0001 {HEAD} 04 01 {UPDATED} {STARTED} 02 02 02 0002 09 03 010203")
    )
    assert read == transaction(
        state=TransactionState.COMPLETE_COMMIT, partitions=(), version=TransactionVersion.V2
    )


def test_a_newer_client_counts_as_the_newest_we_know() -> None:
    read = read_transaction_value(
        "id", value(f"0001 {HEAD} 04 01 {UPDATED} {STARTED} 01 02 02 0007")
    )
    assert read.version is TransactionVersion.V2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "truncated"),
        ("0000 00", "truncated"),
        (f"0002 {HEAD} 00 ffffffff {UPDATED} {STARTED}", "version 2 is unknown"),
        (f"0000 {HEAD} 00 ffffffff {UPDATED} {STARTED} 00", "1 bytes too many"),
        (f"0000 {HEAD} 00 ffffffff {UPDATED}", "truncated"),
        # Kafka has these two, but never writes them.
        (f"0000 {HEAD} 06 ffffffff {UPDATED} {STARTED}", "state 6 is unknown"),
        (f"0000 {HEAD} 07 ffffffff {UPDATED} {STARTED}", "state 7 is unknown"),
        (f"0000 {HEAD} ff ffffffff {UPDATED} {STARTED}", "state -1 is unknown"),
        (f"0000 {HEAD} 01 7fffffff {UPDATED} {STARTED}", "announces 2147483647 items"),
        (f"0001 {HEAD} 00 00 {UPDATED} {STARTED} 01 00 02 0001", "tag 0 has 2 bytes, not 8"),
    ],
)
def test_a_value_that_is_none_is_damaged(text: str, why: str) -> None:
    with pytest.raises(CoordinatorRecordDamaged, match=why):
        read_transaction_value("id", value(text))


@given(st.data())
def test_cut_off_anywhere_a_value_is_damaged(data: st.DataObject) -> None:
    whole = write_transaction_value(transaction(version=data.draw(st.sampled_from([0, 2]))))
    end = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CoordinatorRecordDamaged):
        read_transaction_value("id", whole[:end])


@pytest.mark.parametrize("text", ["0000", "0000 0003 70c3", "0000 0001 7070", "0000 ffff"])
def test_a_key_that_is_none_is_damaged(text: str) -> None:
    with pytest.raises(CoordinatorRecordDamaged):
        read_transaction_key(value(text))
