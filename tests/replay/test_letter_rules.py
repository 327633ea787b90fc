"""Which dead letters are copied, and what the copies look like."""

import pytest

from respool.model.ids import Offset
from respool.model.retry.failure_headers import FailureRecord, read_failure
from respool.model.where import parse_where
from respool.records.record import Headers, Record
from respool.replay.errors import InvalidReplay
from respool.replay.letter_rules import LetterRules, parse_letters_where

NOW_MS = 1_763_107_200_000
OWN: Headers = (("tag", b"paid"), ("respool-replay-id", b"3fa94c01"))
RIDE = FailureRecord(
    topic="rides",
    partition=2,
    offset=4711,
    group="billing",
    deliveries=5,
    error_text="no answer",
    error_class="OSError",
    first_failed_at_ms=NOW_MS - 1,
)


def letter(headers: Headers | None = None, failure: FailureRecord = RIDE) -> Record:
    return Record(
        offset=Offset(7),
        timestamp=NOW_MS - 86_400_000,
        key=b"ride-1",
        value=b"{}",
        headers=(*OWN, *failure.to_headers()) if headers is None else headers,
    )


def truncated() -> Record:
    from dataclasses import replace

    return letter(failure=replace(RIDE, truncated="value"))


STRAY = letter(OWN)
RETRY = LetterRules(to="retry")
ORIGIN = LetterRules(to="origin", origin="rides")
TOPIC = LetterRules(to="topic")


def test_for_the_retry_topic_it_has_its_origin_and_all_its_attempts_again() -> None:
    copy = RETRY.copy_of(letter(), now_ms=NOW_MS)
    assert copy is not None
    failure = read_failure(copy.headers)
    assert (failure.topic, failure.partition, failure.offset) == ("rides", 2, 4711)
    assert (failure.deliveries, failure.first_failed_at_ms) == (0, NOW_MS - 1)
    assert copy.headers[: len(OWN)] == OWN
    assert not [name for name, _ in copy.headers if name.startswith("respool-delay")]


def test_for_its_origin_it_is_as_it_was() -> None:
    copy = ORIGIN.copy_of(letter(), now_ms=NOW_MS)
    assert copy is not None
    assert (copy.key, copy.value, copy.headers) == (b"ride-1", b"{}", OWN)


def test_for_another_topic_it_keeps_all_headers() -> None:
    copy = TOPIC.copy_of(letter(), now_ms=NOW_MS)
    assert copy is not None
    assert copy.headers == letter().headers


@pytest.mark.parametrize("rules", [RETRY, ORIGIN, TOPIC], ids=["retry", "origin", "topic"])
def test_a_copy_has_the_time_at_which_it_is_made(rules: LetterRules) -> None:
    """A letter is kept for longer than a retry: with its own time it might be deleted at once."""
    copy = rules.copy_of(letter(), now_ms=NOW_MS)
    assert copy is not None
    assert (copy.timestamp, copy.offset) == (NOW_MS, 7)


@pytest.mark.parametrize("rules", [RETRY, ORIGIN], ids=["retry", "origin"])
@pytest.mark.parametrize("odd", [STRAY, truncated()], ids=["no origin", "no value"])
def test_what_cannot_be_handled_is_left_out(rules: LetterRules, odd: Record) -> None:
    """A pointer to a value would be handled as a deletion."""
    assert rules.copy_of(odd, now_ms=NOW_MS) is None
    assert TOPIC.copy_of(odd, now_ms=NOW_MS) is not None


def test_only_letters_of_the_origin_are_copied_there() -> None:
    assert LetterRules(to="origin", origin="invoices").copy_of(letter(), now_ms=NOW_MS) is None


def test_a_condition_selects_by_the_headers_of_the_failure_too() -> None:
    for text, holds in [
        ("respool-error-class = 'OSError' and tag = 'paid'", True),
        ("respool-error-class = 'KeyError'", False),
        ("key starts 'ride-'", True),
        ("absent(tag)", False),
    ]:
        rules = LetterRules(to="topic", where=parse_where(text))
        assert rules.selects(letter()) is holds


def test_rules_are_recorded_and_read_again() -> None:
    where = parse_where("tag = 'paid' and key in ('a', x'ff')")
    for rules in (RETRY, ORIGIN, LetterRules(to="topic", where=where)):
        assert LetterRules.from_document(rules.to_document()) == rules
    assert LetterRules.from_document(None) is None


def test_a_condition_that_is_none_names_the_option_and_the_position() -> None:
    with pytest.raises(InvalidReplay, match=r"--where: .*position 5"):
        parse_letters_where("tag ~ 'paid'")
    assert parse_letters_where(None) is None
