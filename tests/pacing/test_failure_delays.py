"""Failed logins wait: longer with each from the same address, and nobody else waits."""

from respool.pacing.failure_delays import (
    ADDRESSES_MAX,
    DELAY_MS_MAX,
    FORGOTTEN_AFTER_MS,
    FailureDelays,
    network_of,
)


def test_the_delay_doubles_up_to_its_limit_and_is_forgotten() -> None:
    delays = FailureDelays(first_ms=100)
    given = [delays.on_failure("10.0.0.1", now_ms=0) for _ in range(8)]
    assert given == [100, 200, 400, 800, 1_600, 3_200, DELAY_MS_MAX, DELAY_MS_MAX]
    assert delays.on_failure("10.0.0.2", now_ms=0) == 100
    assert delays.on_failure("10.0.0.1", now_ms=FORGOTTEN_AFTER_MS) == DELAY_MS_MAX
    assert delays.on_failure("10.0.0.1", now_ms=3 * FORGOTTEN_AFTER_MS) == 100


def test_one_network_counts_as_one_client() -> None:
    delays = FailureDelays(first_ms=100)
    assert delays.on_failure("2001:db8::1", now_ms=0) == 100
    assert delays.on_failure("2001:db8::ffff:2", now_ms=0) == 200
    assert delays.on_failure("2001:db8:0:1::1", now_ms=0) == 100
    assert network_of("2001:db8::1") == "2001:db8::/64"
    assert network_of("not:an:address") == "not:an:address"


def test_strangers_cannot_make_it_remember_without_end() -> None:
    delays = FailureDelays(first_ms=100)
    for number in range(ADDRESSES_MAX + 500):
        delays.on_failure(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", now_ms=0)
    assert len(delays) == ADDRESSES_MAX


def test_no_delay_can_be_chosen() -> None:
    delays = FailureDelays(first_ms=0)
    assert [delays.on_failure("a", now_ms=0) for _ in range(5)] == [0] * 5
