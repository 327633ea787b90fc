"""The rate holds, whatever is taken when, and however often the rate changes."""

from hypothesis import given
from hypothesis import strategies as st

from respool.pacing.token_bucket import NO_LIMIT, TokenBucket

steps = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 10_000)), min_size=1, max_size=40)


@given(steps=steps, rate=st.integers(1, 100_000))
def test_who_waits_as_told_takes_no_more_than_the_rate(
    steps: list[tuple[int, int]], rate: int
) -> None:
    """But for the last of it: nobody knows beforehand how much a request brings."""
    bucket, now_ms, taken = TokenBucket(), 0, 0
    bucket.set_rate(rate, now_ms=0)
    for idle_ms, byte_count in steps:
        now_ms += idle_ms + bucket.wait_ms(now_ms=now_ms + idle_ms)
        assert taken <= rate * now_ms / 1000 + 1e-3
        bucket.take(byte_count, now_ms=now_ms)
        taken += byte_count


def test_what_was_not_used_is_saved_up_for_a_second_and_no_longer() -> None:
    bucket = TokenBucket()
    bucket.set_rate(1000, now_ms=0)
    bucket.take(1000, now_ms=60_000)
    assert bucket.wait_ms(now_ms=60_000) == 0
    bucket.take(100, now_ms=60_000)
    assert bucket.wait_ms(now_ms=60_000) == 100


@given(rate=st.integers(1, 1_000), link=st.integers(16, 1_000))
def test_who_takes_large_pieces_that_take_their_time_gets_the_whole_rate(
    rate: int, link: int
) -> None:
    """A piece counts when it has come; but meanwhile nothing else did. All are small here by a factor of 1,000."""
    bucket, now_ms, taken, piece = TokenBucket(), 0, 0, 16_000
    bucket.set_rate(1000 * rate, now_ms=0)
    while now_ms < 600_000:
        now_ms += bucket.wait_ms(now_ms=now_ms) + max(1, piece // link)
        bucket.take(piece, now_ms=now_ms)
        taken += piece
    possible = min(rate, piece / max(1, piece // link)) * now_ms
    # What a wait is rounded up by is not lost, and what is on its way at the end counts in full.
    assert 0.98 * possible - piece <= taken <= possible + piece + 1000 * rate


def test_a_new_limit_begins_with_nothing_saved_up() -> None:
    bucket = TokenBucket()
    bucket.take(1 << 40, now_ms=0)
    bucket.set_rate(1000, now_ms=60_000)
    bucket.take(100, now_ms=60_000)
    assert bucket.wait_ms(now_ms=60_000) == 100


def test_what_was_taken_stays_taken_when_the_rate_changes() -> None:
    bucket = TokenBucket()
    bucket.set_rate(1000, now_ms=0)
    bucket.take(1000, now_ms=0)
    bucket.set_rate(100, now_ms=500)
    assert bucket.wait_ms(now_ms=500) == 5000
    bucket.set_rate(NO_LIMIT, now_ms=600)
    assert bucket.wait_ms(now_ms=600) == 0


def test_without_a_limit_nobody_waits() -> None:
    bucket = TokenBucket()
    bucket.take(1 << 60, now_ms=0)
    assert bucket.wait_ms(now_ms=0) == 0


def test_nothing_a_second_is_hardly_anything() -> None:
    bucket = TokenBucket()
    bucket.set_rate(0, now_ms=0)
    bucket.take(1000, now_ms=0)
    assert bucket.wait_ms(now_ms=0) == 1_000_000


def test_a_limit_given_at_the_start_begins_with_a_full_bucket() -> None:
    bucket = TokenBucket(rate_per_s=0.5, burst_ms=100, capacity_min=1)
    assert bucket.available(now_ms=5_000) == 1
    bucket.take(1, now_ms=5_000)
    assert bucket.seconds_until(1, now_ms=5_000) == 2
    assert bucket.available(now_ms=6_000) == 0.5
    assert bucket.seconds_until(1, now_ms=60_000) == 0


def test_without_a_limit_any_number_is_available() -> None:
    bucket = TokenBucket()
    bucket.take(1_000_000, now_ms=1)
    assert bucket.available(now_ms=1) == NO_LIMIT
    assert bucket.seconds_until(1_000_000, now_ms=1) == 0


def test_taking_and_waiting_in_one_step_is_the_same_as_in_two() -> None:
    one, two = (TokenBucket(rate_per_s=10.0, burst_ms=1_000) for _ in range(2))
    for now_ms, count in ((0, 4), (100, 9), (150, 0), (2_000, 25)):
        two.take(count, now_ms=now_ms)
        assert one.take_and_wait_ms(count, now_ms=now_ms) == two.wait_ms(now_ms=now_ms)
