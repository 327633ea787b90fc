"""The language of views: what parses, to what, how it prints, and which position an error names."""

from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from respool.model.conditions.clause_parser import InvalidWhere
from respool.model.conditions.clauses import (
    KEYWORDS,
    Clause,
    HeaderExists,
    HeaderIn,
    Hidden,
    KeyIn,
    KeyStarts,
    in_order,
)
from respool.model.conditions.contradictions import contradiction
from respool.model.errors import InvalidConfig
from respool.model.where import (
    CLAUSES_MAX,
    HIDDEN,
    NOT_HIDDEN,
    TEXT_BYTES_MAX,
    VALUES_MAX,
    Where,
    parse_where,
    where_of_tags,
)

CLAUSE_FORMS = "a header's name, exists(…), absent(…), key, hidden or not hidden"
QUOTED = "; a header of this name is written in double quotes"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.one_of(TEXT, st.sampled_from(["tag", "Key", "trace id", 'say "hi"', *sorted(KEYWORDS)]))
VALUES = st.one_of(TEXT.map(str.encode), st.binary(max_size=4), st.just(b"it's"))
VALUE_LISTS = st.lists(VALUES, min_size=1, max_size=4).map(in_order)
CLAUSES: st.SearchStrategy[Clause] = st.one_of(
    st.builds(HeaderIn, NAMES, VALUE_LISTS, st.booleans()),
    st.builds(HeaderExists, NAMES, st.booleans()),
    st.builds(KeyIn, VALUE_LISTS, st.booleans()),
    st.builds(KeyStarts, VALUES),
    st.builds(Hidden, st.booleans()),
)


def one_clause(text: str) -> Clause:
    (clause,) = parse_where(text).clauses
    return clause


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("tag = 'paid'", HeaderIn("tag", (b"paid",))),
        ("tag='paid'", HeaderIn("tag", (b"paid",))),
        ("tag != 'paid'", HeaderIn("tag", (b"paid",), True)),
        ("region in ('us', 'eu')", HeaderIn("region", (b"eu", b"us"))),
        ("region NOT IN ('us','eu','us')", HeaderIn("region", (b"eu", b"us"), True)),
        ("exists(tag)", HeaderExists("tag")),
        ("absent ( tag )", HeaderExists("tag", True)),
        ("key = 'ride-1'", KeyIn((b"ride-1",))),
        ("key != 'ride-1'", KeyIn((b"ride-1",), True)),
        ("key in ('b', 'a')", KeyIn((b"a", b"b"))),
        ("key starts 'ride-'", KeyStarts(b"ride-")),
        ("key starts ''", KeyStarts(b"")),
        ("hidden", Hidden()),
        (" Not Hidden ", Hidden(True)),
        ("\"key\" = 'a'", HeaderIn("key", (b"a",))),
        ("\"trace id\" = 'a'", HeaderIn("trace id", (b"a",))),
        ("\"\" = ''", HeaderIn("", (b"",))),
        ('exists("say ""hi""")', HeaderExists('say "hi"')),
        ("respool-deliver-at = '7'", HeaderIn("respool-deliver-at", (b"7",))),
        ("Tag.v_2 = 'it''s'", HeaderIn("Tag.v_2", (b"it's",))),
        ("tag = 'ä'", HeaderIn("tag", ("ä".encode(),))),
        ("tag = x'00ff'", HeaderIn("tag", (b"\x00\xff",))),
        ("tag = X'00FF'", HeaderIn("tag", (b"\x00\xff",))),
        ("tag = x''", HeaderIn("tag", (b"",))),
        ("x = 'x'", HeaderIn("x", (b"x",))),
        ("tag = 'a and b'", HeaderIn("tag", (b"a and b",))),
    ],
)
def test_a_clause_means_what_it_says(text: str, meant: Clause) -> None:
    assert one_clause(text) == meant


def test_clauses_are_joined_by_and() -> None:
    where = parse_where("tag = 'paid' AND region in ('eu','us')\nand not hidden and key starts 'r'")
    assert where.clauses == (
        HeaderIn("tag", (b"paid",)),
        HeaderIn("region", (b"eu", b"us")),
        Hidden(True),
        KeyStarts(b"r"),
    )
    assert where.header_names == ("tag", "region")
    assert where.key_clauses == (KeyStarts(b"r"),)
    assert where.hidden is False
    assert parse_where("hidden").hidden is True
    assert parse_where("exists(tag)").hidden is None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("tag='b'and key='k'", "tag = 'b' and key = 'k'"),
        ("tag in ('b','a','b')", "tag in ('a', 'b')"),
        ("tag in ('b')", "tag = 'b'"),
        ("tag not in ('b')", "tag != 'b'"),
        ("tag = x'6162'", "tag = 'ab'"),
        ("tag = x'FF'", "tag = x'ff'"),
        ("\"tag\" = 'a'", "tag = 'a'"),
        ("\"AND\" = 'a'", "\"AND\" = 'a'"),
        ("tag = 'a' and tag = 'a'", "tag = 'a'"),
        ("tag = 'a' INCLUDE tombstones", "tag = 'a' include tombstones"),
    ],
)
def test_equal_conditions_print_equally(text: str, canonical: str) -> None:
    assert str(parse_where(text)) == canonical
    assert parse_where(text) == parse_where(canonical)
    assert hash(parse_where(text)) == hash(parse_where(canonical))


@given(st.lists(CLAUSES, min_size=1, max_size=CLAUSES_MAX), st.booleans())
def test_what_is_printed_parses_to_the_same(clauses: list[Clause], tombstones: bool) -> None:
    clauses = list(dict.fromkeys(clauses))
    assume(not contradiction(clauses))
    where = Where(tuple(clauses), tombstones)
    assert parse_where(str(where)) == where


@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from([*KEYWORDS, "tag", "'a'", "=", "(", ")", ",", "!="])).map(" ".join)
)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(InvalidConfig):
        where = parse_where(text)
        assert parse_where(str(where)) == where


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"position 1: found the end, expected {CLAUSE_FORMS}"),
        ("tag", "position 4: found the end, expected =, !=, in or not in"),
        ("tag = ", "position 7: found the end, expected a value in single quotes, such as 'paid'"),
        ("tag = paid", "position 7: found `paid`, expected a value in single quotes, such as 'paid'"),
        ('tag = "paid"', "position 7: found `\"paid\"`, expected a value in single quotes, such as 'paid'"),
        ("tag = 'paid", "position 7: the quote is not closed"),
        ("\"tag = 'a'", "position 1: the quote is not closed"),
        ("tag > 'a'", "position 5: found `> 'a'`, expected =, !=, in or not in"),
        ("tag = x'0'", "position 7: found `x'0'`, expected an even number of hexadecimal digits, such as x'00ff'"),
        ("tag = x'0g'", "position 7: found `x'0g'`, expected an even number of hexadecimal digits, such as x'00ff'"),
        ("tag in 'a'", "position 8: found `'a'`, expected `(` and values"),
        ("tag in ()", "position 9: found `)`, expected a value in single quotes, such as 'paid'"),
        ("tag in ('a' 'b')", "position 13: found `'b'`, expected `,` or `)`"),
        ("tag not 'a'", "position 9: found `'a'`, expected `in`"),
        (
            "tag = 'a' or tag = 'b'",
            (
                "position 11: found `or`, expected the end or `and`; one of several values of a name is: "
                "name in ('a', 'b')"
            ),
        ),
        ("tag = 'a' tag = 'b'", "position 11: found `tag`, expected the end, `and` or `include tombstones`"),
        ("tag = 'a' include", "position 18: found the end, expected `tombstones`"),
        ("tag = 'a' include tombstones and hidden", "position 30: found `and`, expected the end"),
        ("tag = 'a' and", f"position 14: found the end, expected {CLAUSE_FORMS}"),
        ("exists tag", f"position 8: found `tag`, expected `(`{QUOTED}"),
        ("exists(key)", f"position 8: found `key`, expected a header's name{QUOTED}"),
        ("absent(tag", "position 11: found the end, expected `)`"),
        ("key exists", "position 5: found `exists`, expected =, !=, in, not in or starts"),
        ("not tag = 'a'", "position 5: found `tag`, expected `hidden`; for values, write: name not in ('a', 'b')"),
        (f"tag = {'p' * 100}", f"position 7: found `{'p' * 19}…`, expected a value in single quotes, such as 'paid'"),
        ("tag = '\ud800'", "position 8: half of a surrogate pair"),
    ],
)  # fmt: skip
def test_an_error_names_the_position_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidWhere) as caught:
        parse_where(text)
    assert str(caught.value) == message
    assert caught.value.code == InvalidConfig.code


@pytest.mark.parametrize(
    ("text", "impossible"),
    [
        ("absent(tag) and tag = 'a'", "absent(tag) and tag = 'a'"),
        ("region = 'eu' and exists(tag) and absent(tag)", "exists(tag) and absent(tag)"),
        ("tag in ('a', 'b') and tag != 'a' and tag != 'b'", "tag in ('a', 'b') and tag != 'a' and tag != 'b'"),
        ("key = 'a' and key = 'b'", "key = 'a' and key = 'b'"),
        ("key = 'a' and key != 'a'", "key = 'a' and key != 'a'"),
        ("key = 'a' and key starts 'b'", "key = 'a' and key starts 'b'"),
        ("key starts 'ab' and key starts 'b'", "key starts 'ab' and key starts 'b'"),
        ("hidden and not hidden", "hidden and not hidden"),
    ],
)  # fmt: skip
def test_what_can_never_hold_is_refused(text: str, impossible: str) -> None:
    with pytest.raises(InvalidWhere) as caught:
        parse_where(text)
    assert str(caught.value) == f"no record can match {impossible}"


@pytest.mark.parametrize(
    "text",
    [
        "tag = 'a' and tag = 'b'",
        "tag = 'a' and tag != 'b'",
        "tag in ('a', 'b') and tag != 'a'",
        "absent(tag) and tag != 'a'",
        "exists(tag) and tag != 'a'",
        "key in ('a', 'b') and key in ('b', 'c')",
        "key starts 'a' and key starts 'ab'",
        "key starts 'a' and key != 'a'",
        "key != 'a' and key != 'b'",
    ],
)
def test_what_can_hold_is_legal(text: str) -> None:
    assert str(parse_where(text)) == text


def test_sizes_are_limited() -> None:
    names = " and ".join(f"exists(h{number})" for number in range(CLAUSES_MAX))
    assert len(parse_where(names).clauses) == CLAUSES_MAX
    with pytest.raises(InvalidWhere, match="9 clauses, at most 8"):
        parse_where(f"{names} and hidden")

    values = ", ".join(f"'{number}'" for number in range(VALUES_MAX))
    assert len(parse_where(f"tag in ({values})").clauses) == 1
    with pytest.raises(InvalidWhere, match="65 values, at most 64"):
        parse_where(f"tag in ({values}) and key = 'a'")

    longest = "tag = 'é" + "a" * (TEXT_BYTES_MAX - len("tag = 'é'") - 1) + "'"
    assert str(parse_where(longest)) == longest
    with pytest.raises(InvalidWhere, match="4097 bytes, at most 4096"):
        parse_where(longest + " ")
    # Spaces are added in print.
    with pytest.raises(InvalidWhere, match="4098 bytes, at most 4096"):
        parse_where("tag='" + "a" * (TEXT_BYTES_MAX - len("tag=''")) + "'")


def test_two_conditions_are_combined() -> None:
    paid = parse_where("tag = 'paid' and not hidden")
    assert str(paid.and_(NOT_HIDDEN)) == "tag = 'paid' and not hidden"
    assert str(NOT_HIDDEN.and_(parse_where("tag = 'paid'"))) == "not hidden and tag = 'paid'"
    with pytest.raises(InvalidWhere, match="no record can match not hidden and hidden"):
        paid.and_(HIDDEN)


def test_a_combination_may_exceed_the_limits_of_a_text() -> None:
    names = " and ".join(f"exists(h{number})" for number in range(CLAUSES_MAX))
    assert len(parse_where(names).and_(NOT_HIDDEN).clauses) == CLAUSES_MAX + 1


def test_tombstones_are_included_for_headers_of_both_or_of_neither() -> None:
    paid = parse_where("tag = 'paid' include tombstones")
    assert paid.include_tombstones
    assert paid.and_(NOT_HIDDEN) == parse_where("tag = 'paid' and not hidden include tombstones")
    assert NOT_HIDDEN.and_(paid).include_tombstones
    with pytest.raises(InvalidWhere, match="only one of"):
        paid.and_(parse_where("region = 'eu'"))


def test_a_condition_without_headers_does_not_include_the_others_tombstones() -> None:
    """A reader of a view would have been shown what the view hides."""
    view, key = parse_where("tag = 'paid'"), parse_where("key = 'a' include tombstones")
    assert view.and_(key) == parse_where("tag = 'paid' and key = 'a'")
    assert key.and_(view) == parse_where("key = 'a' and tag = 'paid'")
    assert key.and_(key).include_tombstones


def test_tags_from_python_are_headers_with_one_of_these_values() -> None:
    where = where_of_tags({"region": ["us", b"eu"], "tag": "paid", "trace id": b"\xff"})
    assert str(where) == "region in ('eu', 'us') and tag = 'paid' and \"trace id\" = x'ff'"
    assert parse_where(str(where)) == where


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({}, "at least one clause"),
        ({"tag": []}, "tag: no values"),
        ({"tag": 7}, "tag: 7 is not a value"),
        ({"tag": [None]}, "tag: None is not a value"),
        ({"tag": {"a": "b"}}, "tag: {'a': 'b'} is not a value"),
        ({7: "a"}, "7 is not the name of a header"),
        ({"\ud800": "a"}, "half of a surrogate pair"),
        ({"tag": "\ud800"}, "half of a surrogate pair"),
        ({f"h{number}": "a" for number in range(9)}, "9 clauses"),
        ({"tag": "a" * 5_000}, "at most 4096"),
    ],
)
def test_bad_tags_are_refused(tags: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidWhere, match=message):
        where_of_tags(tags)
