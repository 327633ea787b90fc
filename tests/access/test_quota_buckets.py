"""Buckets: what a client uses in any time is bounded, and how many clients are counted."""

from hypothesis import given
from hypothesis import strategies as st

from respool.access.quota_buckets import WAIT_MS_MAX, QuotaBuckets

BURST_MS = 11_000


@given(
    st.floats(1, 1e9),
    st.lists(st.tuples(st.integers(0, 5_000), st.floats(0, 1e6)), max_size=40),
)
def test_a_client_that_waits_uses_at_most_rate_times_time_and_a_burst(
    rate: float, uses: list[tuple[int, float]]
) -> None:
    bucket = QuotaBuckets(burst_ms=BURST_MS, buckets_max=10).at(("a",), rate, now_ms=0)
    now_ms, used, largest = 0, 0.0, 0.0
    for pause_ms, amount in uses:
        now_ms += pause_ms
        if bucket.wait_ms(now_ms=now_ms):
            # Muted: it uses nothing now.
            continue
        used += amount
        largest = max(largest, amount)
        bucket.take(amount, now_ms=now_ms)
        burst = max(1.0, rate * BURST_MS / 1000)
        assert used <= burst + rate * now_ms / 1000 + largest + 1e-6 * used + 1


def test_a_first_use_finds_a_full_bucket_and_a_debt_is_paid_in_time() -> None:
    bucket = QuotaBuckets(burst_ms=BURST_MS, buckets_max=10).at(("a",), 100.0, now_ms=5_000)
    assert bucket.take(1_100, now_ms=5_000) == 0
    assert bucket.take(50, now_ms=5_000) == 500
    assert bucket.wait_ms(now_ms=5_500) == 0


def test_no_wait_is_longer_than_clients_are_patient() -> None:
    bucket = QuotaBuckets(burst_ms=BURST_MS, buckets_max=10).at(("a",), 1.0, now_ms=0)
    assert bucket.take(1e9, now_ms=0) == WAIT_MS_MAX
    # The debt stays.
    assert bucket.wait_ms(now_ms=WAIT_MS_MAX) == WAIT_MS_MAX


def test_a_changed_rate_keeps_the_debt() -> None:
    buckets = QuotaBuckets(burst_ms=1_000, buckets_max=10)
    buckets.at(("a",), 10.0, now_ms=0).take(30, now_ms=0)
    assert buckets.at(("a",), 20.0, now_ms=0).wait_ms(now_ms=0) == 1_000


def test_the_clients_counted_are_bounded_and_the_idle_ones_leave() -> None:
    buckets = QuotaBuckets(burst_ms=1_000, buckets_max=3)
    kept = buckets.at(("kept",), 10.0, now_ms=0)
    for number in range(100):
        buckets.at((number,), 10.0, now_ms=0)
        assert buckets.at(("kept",), 10.0, now_ms=0) is kept
    assert len(buckets) == 3
