"""The field's words, in code, pages and help: none of the retired ones comes back."""

import pytest

from architecture.vocabulary import RETIRED, Retired, occurrences


@pytest.mark.parametrize("retired", RETIRED, ids=lambda retired: retired.pattern)
def test_retired_words_do_not_come_back(retired: Retired) -> None:
    found = occurrences(retired)
    assert found == [], f"say instead: {retired.instead}\n" + "\n".join(found)


@pytest.mark.parametrize("retired", RETIRED, ids=lambda retired: retired.pattern)
def test_every_exception_of_the_retired_words_is_needed(retired: Retired) -> None:
    without = Retired(pattern=retired.pattern, instead="", only=retired.only)
    unneeded = [
        path
        for path in retired.allowed
        if not occurrences(
            Retired(pattern=without.pattern, instead="", only=f"(?={path}){retired.only}")
        )
    ]
    assert unneeded == []


def test_words_are_found_in_names_of_any_style() -> None:
    from architecture.vocabulary import _words

    assert _words("class SeldomLog:  # seldom_log") == "class seldom log: seldom log"
