"""The format of Java properties, as `java.util.Properties` reads it."""

import pytest

from respool.model.kafka_settings.java_properties import java_properties


def read(text: str) -> dict[str, str]:
    return {one.name: one.value for one in java_properties(text)}


@pytest.mark.parametrize("line", ["a=b", "a:b", "a b", "  a = b", "a\t:\tb", "\ufeffa=b"])
def test_a_name_ends_at_the_first_separator_or_space(line: str) -> None:
    assert read(line) == {"a": "b"}


def test_comments_and_empty_lines_are_no_properties() -> None:
    assert read("# a=1\n  ! b=2\n\n \nc=3 # not a comment\n") == {"c": "3 # not a comment"}


def test_a_line_goes_on_after_an_odd_number_of_backslashes() -> None:
    assert read("a=1,\\\n   2,\\\n  3\nb=x\\\\\nc=4") == {"a": "1,2,3", "b": "x\\", "c": "4"}


def test_a_comment_is_not_continued() -> None:
    assert read("# a \\\nb=1") == {"b": "1"}


def test_escapes_stand_for_characters() -> None:
    assert read(r"a\:b\=c\ d = \u00e9\t\q") == {"a:b=c d": "é\tq"}


def test_a_property_knows_its_first_line_and_whether_it_has_a_separator() -> None:
    first, second = java_properties("\na=1\\\n2\nb\n")
    assert (first.line, first.has_separator) == (2, True)
    assert (second.line, second.has_separator, second.value) == (4, False, "")
