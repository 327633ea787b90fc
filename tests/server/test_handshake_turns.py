"""Turns for TLS handshakes: so many a second, in order, and no address takes all of them."""

from respool.server.handshake_turns import WAIT_S_MAX, HandshakeTurnsPerSecond


def test_each_address_has_its_share_and_waits_in_order() -> None:
    turns = HandshakeTurnsPerSecond(per_s=100, per_network_per_s=10, monotonic_ms=lambda: 0)
    waits = [turns.reserve_s("10.0.0.1") for _ in range(30)]
    assert waits[:10] == [0.0] * 10
    rest = [one or 0.0 for one in waits[10:]]
    assert rest == sorted(rest)
    assert abs(rest[-1] - 2.0) < 0.01
    assert turns.reserve_s("10.0.0.2") == 0.0


def test_a_crowd_is_refused_and_reserves_nothing() -> None:
    now = [0]
    turns = HandshakeTurnsPerSecond(per_s=1_000, per_network_per_s=1, monotonic_ms=lambda: now[0])
    waits = [turns.reserve_s("10.0.0.1") for _ in range(100)]
    assert waits.count(None) > 80
    assert max(one for one in waits if one is not None) <= WAIT_S_MAX
    now[0] = 10_000
    assert turns.reserve_s("10.0.0.1") == 0.0
