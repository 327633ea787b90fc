"""How a test's broker is configured: plain values, which can be sent to a child process."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"
# Longer than any test advances the clock.
_NEVER_MS = 1000 * 365 * 24 * 3600 * 1000
# Defaults that differ from `respool serve`; `Broker(settings=...)` takes precedence.
DEFAULT_SETTINGS: Mapping[str, Any] = {
    # Groups form at once instead of waiting three seconds for more members.
    "group_initial_rebalance_delay_ms": 0,
    # Tests may use session timeouts below six seconds.
    "group_min_session_timeout_ms": 100,
    # Fewer partitions are created faster.
    "offsets_topic_partitions": 1,
    "transactions_topic_partitions": 1,
    # Advancing the clock does not make clients idle: their connections survive it.
    "connection_idle_ms": _NEVER_MS,
    "frame_arrival_ms": _NEVER_MS,
    "reply_stall_ms": _NEVER_MS,
    # The end of a test does not wait for clients that it did not close.
    "stop_grace_ms": 1_000,
}
# Settings that have an argument of their own, and those that a test's broker does not support.
_UNAVAILABLE = {
    "data": "give the folder as Broker(data=...)",
    "listen": "give the port as Broker(port=...); a test's broker listens on 127.0.0.1",
    "advertised": "a test's broker is reached where it listens",
    "insecure": "a test's broker listens on 127.0.0.1 only",
    "etcd": "a test's broker is alone; for several, see `respool cluster up`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    partitions: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestBrokerPlan:
    data: str
    # 0: any free port.
    port: int
    settings: Mapping[str, Any]
    topics: Mapping[str, TopicPlan]
    # Whether a sync waits for the disk: only if the folder is kept.
    waits_for_disk: bool


def settings_from(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a test's broker.

    Raises:
        ValueError: a setting that is not supported here.
    """
    for name in given:
        if name in _UNAVAILABLE:
            raise ValueError(f"settings: {name}: {_UNAVAILABLE[name]}")
    return {**DEFAULT_SETTINGS, **given}


def topics_from(given: Mapping[str, "int | Mapping[str, Any]"]) -> dict[str, TopicPlan]:
    """Parse `{"rides": 6}`, or, with configs under Kafka's names, `{"rides": {"partitions": 6, "retention.ms": 1000}}`.

    Raises:
        TypeError: not a mapping, so there are no partition counts.
        ValueError: a value has neither of these forms.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"topics = {given!r}: names with their partitions, such as {{'rides': 1}}")
    return {name: _topic_from(name, one) for name, one in given.items()}


def _topic_from(name: str, given: "int | Mapping[str, Any]") -> TopicPlan:
    settings = {"partitions": given} if isinstance(given, int) else dict(given)
    partitions = settings.pop("partitions", 1)
    if not isinstance(partitions, int) or isinstance(partitions, bool) or partitions < 1:
        raise ValueError(f"topic {name!r}: {partitions!r} is not a number of partitions")
    return TopicPlan(partitions=partitions, settings=topic_settings(settings))


def topic_settings(given: Mapping[str, Any]) -> dict[str, str]:
    """Values as Kafka writes them: true, 1000."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in given.items()
    }
