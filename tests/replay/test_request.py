import json
from typing import Any

import pytest

from respool.model.ids import Offset
from respool.records.record import Headers, Record
from respool.replay.errors import InvalidReplay
from respool.replay.request import (
    HEADERS_BYTES_MAX,
    KEYS_BYTES_MAX,
    MessageFilter,
    ReplayRequest,
    keys_hash,
    recorded_filter,
    wanted_headers,
)


def request(
    keys: frozenset[bytes] | None = None, headers: Any = None, **changes: Any
) -> ReplayRequest:
    fields: dict[str, Any] = {
        "topic": "rides",
        "from_text": "3 days ago",
        "to_text": "now",
        "into": "copy",
        "group": None,
        "selection": MessageFilter(keys=keys, headers=headers),
    }
    return ReplayRequest(**(fields | changes))


def record(*headers: tuple[str, bytes | None], key: bytes | None = None) -> Record:
    pairs: Headers = headers
    return Record(offset=Offset(0), timestamp=0, key=key, value=None, headers=pairs)


def test_the_same_words_are_the_same_replay_and_others_are_not() -> None:
    assert request().fingerprint == request().fingerprint
    others = [
        request(topic="fares"),
        request(from_text="2 days ago"),
        request(to_text="1 day ago"),
        request(into="copy2"),
        request(into=None, group="copy"),
        request(keys=frozenset({b"a"})),
        request(keys=frozenset({b"a", b"b"})),
        request(headers={"a": frozenset({b"b"})}),
        request(headers={"a": frozenset({b"b", b"c"})}),
        request(headers={"b": frozenset({b"a"})}),
        request(keys=frozenset({b"a"}), headers={"b": frozenset({b"a"})}),
    ]
    assert len({each.fingerprint for each in [request(), *others]}) == len(others) + 1


def test_a_replay_begun_before_headers_could_be_given_is_recognised() -> None:
    assert request().fingerprint == "765705b97f849aab20dd79c87a6eed88"
    assert "headers" not in request().to_document()


def test_a_request_is_read_back_as_it_was_recorded() -> None:
    for one in (
        request(),
        request(keys=frozenset({b"a", b"\xff\x00", b""})),
        request(headers={"type": frozenset({b"refund", b"\xff"}), "": frozenset({b""})}),
    ):
        document = json.loads(json.dumps(one.to_document()))
        assert ReplayRequest.from_document(document) == one


def test_keys_are_recorded_or_when_too_long_only_their_hash() -> None:
    many = request(keys=frozenset({b"k" * (KEYS_BYTES_MAX + 1)}))
    document = many.to_document()
    assert document["keys"] is None
    assert document["keys_hash"] == keys_hash(many.selection.keys)
    assert ReplayRequest.from_document(document).selection.keys is None


def test_keys_do_not_run_together_in_the_hash() -> None:
    assert keys_hash(frozenset({b"ab", b"c"})) != keys_hash(frozenset({b"a", b"bc"}))
    assert keys_hash(None) is None


def test_a_filter_wants_one_of_the_keys_and_every_header_with_one_of_its_values() -> None:
    assert MessageFilter().selects(record())
    keys = MessageFilter(keys=frozenset({b"a", b""}))
    assert [keys.selects(record(key=key)) for key in (b"a", b"", b"b", None)] == [
        True, True, False, False,
    ]  # fmt: skip
    headers = MessageFilter(headers=wanted_headers([("t", b"x"), ("t", b"y"), ("u", b"z")]))
    assert headers.selects(record(("t", b"y"), ("u", b"z"), ("v", b"w")))
    # A header may be there more than once.
    assert headers.selects(record(("t", b"no"), ("t", b"x"), ("u", b"z")))
    assert not headers.selects(record(("t", b"y")))
    assert not headers.selects(record(("t", b"z"), ("u", b"z")))
    assert not headers.selects(record(("t", None), ("u", b"z")))
    both = MessageFilter(keys=frozenset({b"a"}), headers=wanted_headers([("t", b"x")]))
    assert both.selects(record(("t", b"x"), key=b"a"))
    assert not both.selects(record(("t", b"x"), key=b"b"))
    assert not both.selects(record(key=b"a"))


def test_a_resumed_replay_filters_as_it_was_begun() -> None:
    begun = request(keys=frozenset({b"a"}), headers={"t": frozenset({b"x"})})
    document = begun.to_document()
    assert recorded_filter("aa", document, MessageFilter()) == begun.selection
    assert recorded_filter("aa", document, begun.selection) == begun.selection
    with pytest.raises(InvalidReplay, match="begun with other keys"):
        recorded_filter("aa", document, MessageFilter(keys=frozenset({b"b"})))
    with pytest.raises(InvalidReplay, match="begun with other headers"):
        recorded_filter("aa", document, MessageFilter(headers={"t": frozenset({b"y"})}))
    with pytest.raises(InvalidReplay, match="begun with other headers"):
        recorded_filter(
            "aa", request().to_document(), MessageFilter(headers={"t": frozenset({b"y"})})
        )


def test_keys_too_long_to_be_recorded_are_given_again() -> None:
    many = MessageFilter(keys=frozenset({b"k" * (KEYS_BYTES_MAX + 1)}))
    document = request(selection=many).to_document()
    with pytest.raises(InvalidReplay, match="more keys than are recorded"):
        recorded_filter("aa", document, MessageFilter())
    assert recorded_filter("aa", document, many) == many


def test_headers_too_long_to_be_recorded_are_refused() -> None:
    assert wanted_headers([]) is None
    with pytest.raises(InvalidReplay, match=f"limit {HEADERS_BYTES_MAX}"):
        wanted_headers([("t", b"x" * (HEADERS_BYTES_MAX + 1))])
