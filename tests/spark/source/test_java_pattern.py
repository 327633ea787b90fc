"""Patterns of Java's either mean the same in Python, or are refused."""

import pytest

from respool.spark.option_values import BadOption
from respool.spark.source.java_pattern import topic_pattern


@pytest.mark.parametrize(
    ("said", "matching", "other"),
    [
        ("rides.*", "rides-eu", "my-rides"),
        (r"rides\.(eu|us)", "rides.eu", "rides-eu"),
        (r"\Qa.b\E", "a.b", "acb"),
        (r"\Qa.b", "a.b", "acb"),
        (r"[a-c&]+\d{2}", "ab&01", "ad01"),
        (r"\p{Alpha}+", "abc", "ab1"),
        (r"[\p{Digit}_]+", "1_2", "a"),
        (r"\P{Upper}+", "ab", "aB"),
        (r"(?<x>a|b)-\k<x>", "a-a", "a-b"),
        (r"(?i)RIDES", "rides", "fares"),
        (r"(?:a++)b", "aab", "a"),
        (r"(?!fares).*\z", "rides", "fares"),
        (r"[^.]+\x41?", "xA", "x.A"),
        (r"[a--b]", "-", "c"),
    ],
)
def test_a_pattern_matches_as_in_java(said: str, matching: str, other: str) -> None:
    pattern = topic_pattern("subscribePattern", said)
    assert pattern.fullmatch(matching)
    assert not pattern.fullmatch(other)


@pytest.mark.parametrize(
    "said", ["", "[a&&[b]]", "[a[b]]", r"\p{IsGreek}", r"\h+", r"\G", "(?d)a", "a(", "[]a]", "*a"]
)
def test_what_python_cannot_say_is_refused(said: str) -> None:
    with pytest.raises(BadOption, match="subscribePattern"):
        topic_pattern("subscribePattern", said)
