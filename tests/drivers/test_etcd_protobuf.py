"""Protocol buffers as etcd reads and writes them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.drivers.etcd_messages import (
    AuthenticateResponse,
    Compare,
    DeleteRangeRequest,
    Event,
    KeyValue,
    LeaseTtlResponse,
    PutRequest,
    RangeRequest,
    RequestOp,
    ResponseHeader,
    TxnRequest,
    TxnResponse,
    WatchResponse,
)
from respool.drivers.etcd_protobuf import MessageDamaged, decode, encode

INT64 = st.integers(-(2**63), 2**63 - 1)
KEY_VALUES = st.builds(KeyValue, key=st.binary(), mod_revision=INT64, value=st.binary())


@settings(deadline=None)
@given(
    st.builds(
        WatchResponse,
        created=st.booleans(),
        canceled=st.booleans(),
        compact_revision=INT64,
        cancel_reason=st.text(),
        events=st.lists(st.builds(Event, type=INT64, kv=st.none() | KEY_VALUES)).map(tuple),
    )
)
def test_a_message_comes_back_as_it_was(message: WatchResponse) -> None:
    assert decode(encode(message), WatchResponse) == message


def test_bytes_are_those_of_the_specification() -> None:
    ask = TxnRequest(
        compare=(Compare(target=2, key=b"k", mod_revision=300),),
        success=(RequestOp(put=PutRequest(key=b"k", value=b"v", lease=-1)),),
        failure=(RequestOp(range=RangeRequest(key=b"k")),),
    )
    assert encode(ask) == (
        b"\x0a\x08" + b"\x10\x02" + b"\x1a\x01k" + b"\x30\xac\x02"
        # Minus one takes ten bytes.
        b"\x12\x13\x12\x11" + b"\x0a\x01k" + b"\x12\x01v" + b"\x18" + b"\xff" * 9 + b"\x01"
        b"\x1a\x05\x0a\x03" + b"\x0a\x01k"
    )


def test_an_empty_message_inside_is_sent_and_none_is_not() -> None:
    assert encode(RequestOp(delete=DeleteRangeRequest())) == b"\x1a\x00"
    assert encode(RequestOp()) == b""


def test_fields_nobody_knows_are_skipped() -> None:
    unknown = b"\xf8\x07\x05" + b"\xf1\x07" + bytes(8) + b"\xf5\x07" + bytes(4) + b"\xfa\x07\x02hi"
    message = TxnResponse(header=ResponseHeader(revision=7), succeeded=True)
    assert decode(unknown + encode(message) + unknown, TxnResponse) == message


def test_a_later_value_wins() -> None:
    once, twice = LeaseTtlResponse(ttl_s=1), LeaseTtlResponse(ttl_s=2)
    assert decode(encode(once) + encode(twice), LeaseTtlResponse) == twice


@pytest.mark.parametrize(
    ("damaged", "kind"),
    [
        (b"\x12", AuthenticateResponse),
        (b"\x12\x05abc", AuthenticateResponse),
        (b"\x18", LeaseTtlResponse),
        (b"\x18" + b"\xff" * 10 + b"\x01", LeaseTtlResponse),
        (b"\x13", AuthenticateResponse),
        (b"\x10\x01", AuthenticateResponse),
        (b"\x1a\x01x", LeaseTtlResponse),
        (b"\x0a\x02\x18", TxnResponse),
    ],
)
def test_what_is_no_message_is_refused(damaged: bytes, kind: type) -> None:
    with pytest.raises(MessageDamaged):
        decode(damaged, kind)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        decode(data, WatchResponse)
    except MessageDamaged:
        return
