"""What bound a rate: the resource that was used up, or none."""

from dataclasses import replace
from typing import Any

from bench.cluster_rates import Rate, bound_by, table_of

MB = 1024 * 1024
IDLE = Rate(
    brokers=2,
    messages_per_s=1e6,
    bytes_per_s=100 * MB,
    broker_cores=0.5,
    client_cores=0.2,
    machine_share=0.4,
)


def test_the_resource_that_is_used_most_bound_the_rate() -> None:
    def bound(**fields: Any) -> str:
        return bound_by(replace(IDLE, **fields), disk_bytes_per_s=500 * MB)

    assert bound(machine_share=0.95) == "the machine's CPU"
    assert bound(bytes_per_s=450 * MB) == "the disk"
    # One core each.
    assert bound(client_cores=1.9) == "the clients"
    assert bound(machine_share=0.85, bytes_per_s=490 * MB) == "the disk"
    assert bound().startswith("none of them")


def test_the_table_compares_with_one_broker_and_says_that_one_machine_was_used() -> None:
    rates = [replace(IDLE, brokers=count, messages_per_s=count * 1e6) for count in (1, 2, 3)]
    table = table_of(rates, cores=2, disk=500.0 * MB)
    assert [row["scaling"] for row in table.rows] == [1, 2, 3]
    assert "one machine with 2 cores" in table.notes[0]
