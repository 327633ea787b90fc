"""Durations of requests about delegation tokens."""

from datetime import timedelta

from respool.broker.handlers.support.token_fields import milliseconds


def test_negative_durations_stay_negative() -> None:
    assert milliseconds(timedelta(milliseconds=-1)) == -1
    assert milliseconds(timedelta(days=7)) == 604_800_000
