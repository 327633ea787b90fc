"""`Retry`: what is accepted, and what is refused with a reason."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from respool.client.messages.errors import BadArgument
from respool.client.messages.retry.retry_options import DELAYS_MAX, Retry


def test_delays_are_text_or_timedeltas() -> None:
    retry = Retry(delays=["500ms", "1h30m", timedelta(days=1)])
    assert retry.delays_ms == (500, 5_400_000, 86_400_000)


def test_the_default_is_four_delays_and_dead_letters() -> None:
    assert Retry().delays_ms == (10_000, 60_000, 600_000, 3_600_000)
    assert Retry().dead_letters is True


def test_delays_may_come_from_an_iterator() -> None:
    retry = Retry(delays=(f"{minutes}m" for minutes in (1, 2)))
    assert retry.delays_ms == (60_000, 120_000)
    assert retry.delays == ("1m", "2m")


def test_one_class_needs_no_tuple() -> None:
    assert Retry(give_up=ValueError).give_up == (ValueError,)


def test_as_many_delays_as_allowed_are_accepted() -> None:
    assert len(Retry(delays=["1s"] * DELAYS_MAX).delays_ms) == DELAYS_MAX


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delays": ()}, "1 to 32"),
        ({"delays": ["1s"] * (DELAYS_MAX + 1)}, "1 to 32, not 33"),
        ({"delays": "10s"}, r"such as \('10s', '1m'\)"),
        ({"delays": timedelta(seconds=1)}, "several"),
        ({"delays": 10}, "several"),
        ({"delays": [10]}, "text such as '90s'"),
        ({"delays": ["10"]}, "has no unit"),
        ({"delays": ["soon"]}, "not a length of time"),
        ({"delays": ["0s"]}, "1ms to 3650d"),
        ({"delays": [timedelta(seconds=-1)]}, "1ms to 3650d"),
        ({"delays": ["3651d"]}, "1ms to 3650d"),
        ({"dead_letters": "dlq.other"}, "True or False"),
        ({"give_up": ("ValueError",)}, "classes of exceptions"),
        ({"give_up": KeyboardInterrupt}, "classes of exceptions"),
        ({"retry_rate_max": 0}, "failures per second"),
        ({"retry_rate_max": float("inf")}, "failures per second"),
        ({"retry_rate_max": float("nan")}, "failures per second"),
        ({"retry_rate_max": True}, "failures per second"),
        ({"retry_rate_max": "10/s"}, "failures per second"),
    ],
)
def test_what_is_no_option_is_refused_with_what_is_one(options: Any, reason: str) -> None:
    with pytest.raises(BadArgument, match=reason):
        Retry(**options)


def test_falling_delays_are_accepted_with_a_warning_where_they_are_written() -> None:
    with pytest.warns(UserWarning, match="waits 1m, and the one after it 10s") as warned:
        retry = Retry(delays=("1s", "1m", "10s", "1s"))
    assert retry.delays_ms == (1_000, 60_000, 10_000, 1_000)
    # The name alone: what pytest has rewritten knows its file relative to the root.
    assert [Path(one.filename).name for one in warned] == [Path(__file__).name]
