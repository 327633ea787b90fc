"""What Kafka's tools print is understood, and what they do not print is an error."""

import pytest
from bench.versus.perf_output import UnknownOutput, complaints, consumed, produced_per_s

LATENCIES = "130.54 ms avg latency, 343.00 ms max latency, 158 ms 50th, 233 ms 95th, 240 ms 99th, 241 ms 99.9th."
WHOLE = f"2000000 records sent, 936329.588015 records/sec (89.30 MB/sec), {LATENCIES}\n"
STEADY = (
    f"1500000 steady state records sent, 1212611.156023 records/sec (115.64 MB/sec), {LATENCIES}\n"
)
PART = f"900123 records sent, 180024.6 records/sec (17.17 MB/sec), {LATENCIES}\n"
CONSUMED = """\
start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
fetch.MB.sec, fetch.nMsg.sec
2026-11-15 23:12:48:978, 2026-11-15 23:12:57:810, 572.2046, 64.7877, 6000000, 679347.8261, 4842, 3990, 143.4097, \
1503759.3985
"""


def test_the_rate_after_the_warm_up_counts_where_there_was_one() -> None:
    assert produced_per_s("Warmup first 500000 records.\n" + WHOLE + STEADY) == 1212611.156023


def test_without_a_warm_up_the_last_line_is_the_whole() -> None:
    assert produced_per_s(PART + PART + WHOLE) == 936329.588015


def test_a_producer_that_says_nothing_is_an_error_with_what_it_said() -> None:
    with pytest.raises(UnknownOutput, match="no such topic"):
        produced_per_s("no such topic\n")


def test_the_consumers_rate_leaves_out_the_time_in_which_its_group_forms() -> None:
    assert consumed("some warning\n" + CONSUMED) == (6_000_000, 1503759.3985)


@pytest.mark.parametrize("text", ["", CONSUMED.splitlines()[0], CONSUMED.replace("nMsg", "nRec")])
def test_a_consumers_table_that_is_not_there_is_an_error(text: str) -> None:
    with pytest.raises(UnknownOutput):
        consumed(text)


def test_complaints_are_warnings_and_errors_once_each() -> None:
    errors = (
        "[kafka-producer-network-thread] WARN org.apache.kafka.Client - node 1 disconnected\n"
        "[kafka-producer-network-thread] WARN org.apache.kafka.Client - node 2 disconnected\n"
        "[main] ERROR org.apache.kafka.Tool - broken\n"
        "just a line\n"
    )
    assert complaints(errors) == [
        "[kafka-producer-network-thread] WARN org.apache.kafka.Client - node # disconnected",
        "[main] ERROR org.apache.kafka.Tool - broken",
    ]
