"""One word for batch size versus latency."""

import pytest

from respool.client.messages.batching import PACES, pace_settings
from respool.client.messages.errors import BadArgument


def test_from_latency_to_throughput_messages_wait_longer_for_larger_batches() -> None:
    paces = [pace_settings(pace) for pace in ("latency", "balanced", "throughput")]
    for setting in ("linger.ms", "batch.size"):
        values = [int(str(pace.producer[setting])) for pace in paces]
        assert values == sorted(set(values))
    at_once = [pace.messages_at_once for pace in paces]
    assert at_once == sorted(set(at_once))
    assert paces[0].producer["linger.ms"] == 0
    assert paces[0].messages_at_once == 1


def test_another_pace_is_refused_with_the_ones_there_are() -> None:
    with pytest.raises(BadArgument, match=", ".join(PACES)):
        pace_settings("fast")
