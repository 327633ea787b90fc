import re
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordination.group_world import FUZZ
from respool.coordination.topic_patterns.pattern_syntax import PATTERN_LENGTH_MAX
from respool.coordination.topic_patterns.topic_pattern import (
    PROGRAM_LENGTH_MAX,
    WORK_MAX,
    TopicPattern,
    topic_pattern,
)
from respool.model.coordinator_errors import InvalidRegularExpression

EXAMPLES = 20_000 if FUZZ else 300


def matches(pattern: str, *names: str) -> list[bool]:
    found = TopicPattern(pattern).matching(names)
    return [name in found for name in names]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("rides", "rides", "rides2"),
        ("rides.*", "rides-eu", "my-rides"),
        ("^rides.*", "rides", "Rides"),
        ("^rides$|^bills$", "bills", "bill"),
        (r"rides\.eu", "rides.eu", "rides-eu"),
        ("a|b|", "", "ab"),
        ("()", "", "a"),
        ("(a(b|c))+d", "abacd", "abad"),
        ("(?:ab)*", "abab", "aba"),
        ("(?P<name>a)(?<other>b)", "ab", "a"),
        ("a?b+c*", "bb", "ac"),
        ("a{2}b{1,2}c{1,}", "aabcc", "abc"),
        ("a{0}b", "b", "ab"),
        ("a*?b+?c??", "aab", "c"),
        ("[a-c_.-]+", "a_.-c", "d"),
        ("[^a-c]+", "d9", "da"),
        ("[]a]+", "a", "]b"),
        ("[a-]+", "a-", "b"),
        (r"[\d_]+", "1_2", "a"),
        ("[[:alpha:][:digit:]]+", "a1", "_"),
        ("[[:^alpha:]]+", "1_", "a"),
        (r"\d\D\w\W\S", "1_a.b", "aa.bb"),
        (r"\pL\p{Nd}\P{L}", "a1_", "a1b"),
        (r"\p{^L}", "1", "a"),
        (r"\x41\x{42}\103", "ABC", "abc"),
        (r"\Qa.b\E+", "a.bb", "axb"),
        (r"\Qa.b", "a.b", "a.bb"),
        ("(?i)RiDes", "rIdES", "ride"),
        ("(?i:r)ides", "Rides", "RIDES"),
        ("(?i)a(?-i)b", "Ab", "AB"),
        ("(a(?i)b)c", "aBc", "aBC"),
        ("(?ms)^a$", "a", "b"),
        (r"\Aa\b.\z", "a.", "ab"),
        (r"a\b.b", "a.b", "a_b"),
        (r"a\B.b", "a_b", "a.b"),
        (r"\C+", "anything", ""),
    ],
)
def test_a_pattern_matches_whole_names_in_re2_s_syntax(pattern: str, yes: str, no: str) -> None:
    assert matches(pattern, yes, no) == [True, False]


@pytest.mark.parametrize("pattern", ["x{,2}", "a b", r"\n", "[é-ü]", "(?i)é", r"\x{2603}"])
def test_what_is_in_no_topic_s_name_can_be_said_and_matches_none(pattern: str) -> None:
    assert matches(pattern, "xx", "x", "ab", "n", "e", "") == [False] * 6


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "[z-a]",
        "[[:beta:]]",
        "*a",
        "a|*",
        "a**",
        "a+*",
        "a{2}{3}",
        "a{1001}",
        "a{3,2}",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        "(?x)a",
        "(?P<a",
        "(?P<>a)",
        r"(a)\1",
        r"\Z",
        r"\y",
        "\\",
        r"\x",
        r"\x4",
        r"\x{110000}",
        r"\x{zz}",
        r"\p{Nonsense}",
        r"\p{L",
        "(" * 200 + ")" * 200,
        "a" * (PATTERN_LENGTH_MAX + 1),
        "a" * (PROGRAM_LENGTH_MAX + 1),
        "((a{100}){100}){100}",
        "(a{1000}){5}",
    ],
)
def test_what_re2_does_not_have_or_is_too_long_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        TopicPattern(pattern)


def test_the_refusal_says_where_and_why_and_is_short() -> None:
    with pytest.raises(
        InvalidRegularExpression, match=r"'a\*\*' is wrong at character 3: a repetition of"
    ):
        TopicPattern("a**")
    with pytest.raises(InvalidRegularExpression) as refusal:
        TopicPattern("[" + "a" * 4_000)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("pattern", ["(x+x+)+y", "(a|aa)*b", "(.*)*(.*)*(.*)*c", "(a?){30}a{30}"])
def test_a_pattern_that_would_take_python_for_ever_takes_little(pattern: str) -> None:
    compiled = TopicPattern(pattern)
    compiled.matching(["x" * 249, "a" * 249, "ab" * 120])
    assert compiled._work_left > WORK_MAX // 2


def test_a_pattern_that_takes_too_much_work_is_refused_also_when_asked_again() -> None:
    compiled = TopicPattern("(.*a.*b.*c){20}.{200}")
    names = [f"{'abc' * (n % 80)}{n}" for n in range(2_000)]
    for _ in range(2):
        with pytest.raises(InvalidRegularExpression, match="too much work"):
            compiled.matching(names)


def test_many_alternatives_are_matched_together() -> None:
    text = "|".join(f"^team{n}[.]orders-(eu|us)-[0-9]+$" for n in range(100))
    names = [f"team{n}.orders-eu-{k}" for n in range(100) for k in (1, 22)]
    assert TopicPattern(text).matching([*names, "team7.orders-eu-"]) == set(names)


def test_the_same_text_is_compiled_once() -> None:
    assert topic_pattern("rides.*") is topic_pattern("rides.*")


chars = st.sampled_from("ab.-_1Z")
# In Python `\B` does not match the empty name; there is none.
names = st.lists(st.text(chars, min_size=1, max_size=8), max_size=8)


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}{}".format, parts, parts),
        st.builds("{}|{}".format, parts, parts),
        st.builds("({})".format, parts),
        st.builds(
            "(?:{}){}".format, parts, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,}"])
        ),
        st.builds("(?i:{})".format, parts),
    )


atoms = st.sampled_from(
    [
        "a",
        "b",
        r"\.",
        ".",
        "-",
        "1",
        "Z",
        "[ab]",
        "[^a]",
        "[a-z.]",
        r"\d",
        r"\W",
        r"\b",
        r"\B",
        "^",
        "$",
    ]
)
patterns = st.recursive(atoms, _joined, max_leaves=8)


@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(patterns, names)
@example("(?:a*)*", ["aaaa", "b"])
@example(r"(?:\b|a)+", ["a", "."])
def test_python_finds_the_same_names(pattern: str, found: list[str]) -> None:
    # `$` also matches before a last newline in Python, but no name has one.
    theirs = {name for name in found if re.fullmatch(pattern, name, re.ASCII)}
    assert TopicPattern(pattern).matching(found) == theirs


@pytest.mark.long
@settings(max_examples=EXAMPLES, deadline=None)
@given(st.text(st.sampled_from(string.printable + "é☃"), max_size=30))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    try:
        pattern = TopicPattern(text)
    except InvalidRegularExpression:
        return
    pattern.matching(["rides", "rides-eu.1", ""])
