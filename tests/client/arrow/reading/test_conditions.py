"""The condition that `tags` and `where` state, and what is said of arguments that state none."""

import functools
import operator
from typing import Any

import pyarrow.compute as pc
import pytest

from respool.client.arrow.reading.conditions import condition_of, text_for_brokers
from respool.client.kafka.errors import BadArgument
from respool.columnar.clause_tables import clause_tables
from respool.model.where import CLAUSES_MAX, parse_where

key = pc.field("key")


@pytest.mark.parametrize(
    ("tags", "where", "condition"),
    [
        ({"tag": "paid"}, None, "tag = 'paid'"),
        ({"region": ["eu", b"us"], "tag": b"\xff"}, None, "region in ('eu','us') and tag = x'ff'"),
        ("region != 'eu' and key starts 'ride-'", None, "region != 'eu' and key starts 'ride-'"),
        (None, key == b"a", "key = 'a'"),
        ({"tag": "paid"}, key.isin([b"a", b"b"]), "tag = 'paid' and key in ('a','b')"),
        ("tag = 'a' include tombstones", key == b"a", "tag = 'a' and key = 'a' include tombstones"),
        ({"tag": "paid"}, pc.field("offset") > 3, "tag = 'paid'"),
        # No row: `where` says so itself.
        ({"tag": "paid"}, (key == b"a") & (key == b"b"), "tag = 'paid'"),
    ],
)
def test_tags_and_required_keys_are_one_condition(tags: Any, where: Any, condition: str) -> None:
    assert condition_of(tags, where) == parse_where(condition)


def test_neither_is_no_condition() -> None:
    assert condition_of(None, None) is None
    assert condition_of(None, (key == b"a") & (key == b"b")) is None


def test_of_very_many_required_keys_some_are_compared_early() -> None:
    """Each is a clause, and a table of clauses is limited. The expression itself is evaluated in any case."""
    required = [key.isin([b"a", b"%d" % number]) for number in range(100)]
    condition = condition_of(None, functools.reduce(operator.and_, required))
    assert condition is not None
    assert len(condition.clauses) == CLAUSES_MAX
    assert not clause_tables(condition).is_empty


@pytest.mark.parametrize(
    ("tags", "says"),
    [
        ({}, r"tags = \{\} names no header: leave it out to read everything"),
        ("", "tags = '' names no header"),
        (["tag"], r"tags = \['tag'\]: header names with the values to read, such as"),
        (7, "tags = 7: header names with"),
        ({"tag": 7}, "tag: 7 is not a value; give text, bytes, or several"),
        ({"tag": [7]}, "tag: 7 is not a value; give text or bytes"),
        ({"tag": None}, "tag: None is not a value"),
        ({"tag": []}, "tag: no values, so that no record could match"),
        ({7: "tag"}, "7 is not the name of a header: give text"),
        ({"tag": [b"%d" % n for n in range(65)]}, "65 values, at most 64 are allowed"),
        ({f"tag{n}": "a" for n in range(9)}, "9 clauses, at most 8 are allowed"),
        ({"tag": "a" * 5_000}, "a condition of 50.. bytes, at most 4096 are allowed"),
        ("tag = paid", "position 7: found `paid`, expected a value in single quotes"),
        ("absent(tag) and tag = 'a'", r"no record can match absent\(tag\) and tag = 'a'"),
    ],
)
def test_what_is_no_condition_is_refused_with_the_reason(tags: Any, says: str) -> None:
    with pytest.raises(BadArgument, match=says):
        condition_of(tags, None)


def test_brokers_are_sent_what_they_accept() -> None:
    assert text_for_brokers(None) == ""
    condition = condition_of({"tag": "paid"}, key == b"a")
    assert text_for_brokers(condition) == "tag = 'paid' and key = 'a'"
    # 64 values each: as one condition they are too many.
    many = condition_of({"tag": [b"%d" % n for n in range(64)]}, key.isin([b"a", b"b"]))
    assert many is not None
    assert text_for_brokers(many) == ""
