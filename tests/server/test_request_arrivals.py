"""How long requests wait behind earlier ones of their connection."""

from time import perf_counter

from respool.server.request_arrivals import RequestArrivals


def test_a_request_that_starts_as_it_arrives_has_not_waited() -> None:
    arrivals = RequestArrivals()
    arrivals.bytes_received = arrivals.bytes_taken = 100
    assert arrivals.queued_s(perf_counter()) == 0.0


def test_a_request_waits_from_the_arrival_of_its_last_byte() -> None:
    arrivals = RequestArrivals()
    arrivals.bytes_received = 100
    arrivals.on_waiting()
    arrivals.bytes_taken = 100
    assert arrivals.queued_s(perf_counter() + 5.0) >= 5.0
    # The next one came with later bytes.
    arrivals.bytes_received = arrivals.bytes_taken = 200
    assert arrivals.queued_s(perf_counter()) == 0.0


def test_a_deferred_request_waits_from_when_it_was_parsed() -> None:
    arrivals = RequestArrivals()
    arrivals.bytes_received = arrivals.bytes_taken = 100
    arrivals.on_deferred()
    assert arrivals.queued_s(perf_counter() + 3.0) >= 3.0
    assert arrivals.queued_s(perf_counter() + 3.0) == 0.0
