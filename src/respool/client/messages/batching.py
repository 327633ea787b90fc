"""Batch size versus latency, as one choice for producers and consumers.

Larger batches cost less per message and arrive later. `pace` selects how long a message may wait for others:

    pace         producer linger               batch at most         fetch waits for      messages per poll
    latency      not at all                    16 KiB                1 byte               1 message
    balanced     5 ms                          256 KiB               1 byte               100 messages
    throughput   100 ms                        1 MB                  256 KiB or 500 ms    1,000 messages
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from respool.client.messages.errors import BadArgument

Pace = Literal["latency", "balanced", "throughput"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSettings:
    producer: Mapping[str, object]
    consumer: Mapping[str, object]
    # How many messages are fetched from librdkafka at once. At-most-once commits them together, so a crash may lose
    # that many; and a consumer not polled within `max.poll.interval.ms` is removed from the group.
    messages_at_once: int
    # How many messages of a consume-transform-produce loop share one transaction.
    transaction_messages: int


# A fetch that waits for a first message delays later requests on the same connection, such as those of a rewind.
_WAIT_MS = 100


PACES: Mapping[str, PaceSettings] = {
    "latency": PaceSettings(
        producer={"linger.ms": 0, "batch.size": 16 * 1024},
        consumer={"fetch.min.bytes": 1, "fetch.wait.max.ms": _WAIT_MS},
        messages_at_once=1,
        transaction_messages=50,
    ),
    "balanced": PaceSettings(
        producer={"linger.ms": 5, "batch.size": 256 * 1024},
        consumer={"fetch.min.bytes": 1, "fetch.wait.max.ms": _WAIT_MS},
        messages_at_once=100,
        transaction_messages=500,
    ),
    "throughput": PaceSettings(
        producer={"linger.ms": 100, "batch.size": 1_000_000, "batch.num.messages": 100_000},
        consumer={"fetch.min.bytes": 256 * 1024, "fetch.wait.max.ms": 500},
        messages_at_once=1_000,
        transaction_messages=5_000,
    ),
}


def pace_settings(pace: str) -> PaceSettings:
    if pace not in PACES:
        raise BadArgument(f"pace is one of {', '.join(PACES)}, not {pace!r}")
    return PACES[pace]
