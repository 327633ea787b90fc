"""A repeated event is logged at once, then once a minute with the number suppressed, and at its end."""

import logging

import pytest

from respool.pacing.rate_limited_log import INTERVAL_S, RateLimitedLog

logger = logging.getLogger("peers")


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_an_event_that_repeats_is_logged_at_once_and_once_a_minute() -> None:
    fault = RateLimitedLog(logger)
    logged_at = [
        second
        for second in range(150)
        if fault.log(logging.WARNING, "the store is away", now_s=second)
    ]
    assert logged_at == [0, int(INTERVAL_S), int(2 * INTERVAL_S)]


def test_the_end_of_a_fault_is_known_once_and_the_next_one_is_logged_at_once() -> None:
    fault = RateLimitedLog(logger)
    assert not fault.clear()
    assert fault.log(logging.WARNING, "the store is away", now_s=0)
    assert (fault.clear(), fault.clear()) == (True, False)
    assert fault.log(logging.WARNING, "the store is away", now_s=0)


def test_a_line_says_how_many_events_were_suppressed_before_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peers = RateLimitedLog(logger)
    for _ in range(51_720):
        peers.log(logging.WARNING, "refused %s", "10.0.0.1", now_s=0, key="10.0.0.1")
    peers.log(logging.WARNING, "refused %s", "10.0.0.1", now_s=INTERVAL_S, key="10.0.0.1")
    assert caplog.messages == [
        "refused 10.0.0.1",
        "refused 10.0.0.1 (51719 more like this since the last such line)",
    ]


def test_a_burst_that_has_ended_is_reported_by_flush(caplog: pytest.LogCaptureFixture) -> None:
    peers = RateLimitedLog(logger)
    for number in range(10):
        peers.log(logging.WARNING, "refused port %d", number, now_s=0, key="10.0.0.1")
    peers.flush(0)
    peers.flush(INTERVAL_S)
    peers.flush(INTERVAL_S)
    peers.flush(2 * INTERVAL_S)
    assert caplog.messages == [
        "refused port 0",
        "refused port 9 (8 more like this since the last such line)",
    ]


def test_keys_beyond_the_limit_share_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    peers = RateLimitedLog(logger, keys_max=3)
    for number in range(1_000):
        peers.log(logging.WARNING, "refused %d", number, now_s=0, key=str(number))
    assert len(caplog.messages) == 4
    # Keys that have fallen silent make room.
    peers.flush(INTERVAL_S)
    assert peers.log(logging.WARNING, "refused %s", "new", now_s=2 * INTERVAL_S, key="new")
    assert not peers.log(logging.WARNING, "refused %s", "new", now_s=2 * INTERVAL_S, key="new")
    assert caplog.messages == [
        "refused 0",
        "refused 1",
        "refused 2",
        "refused 3",
        "refused 999 (995 more like this since the last such line)",
        "refused new",
    ]
