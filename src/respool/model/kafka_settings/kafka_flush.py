"""Kafka's `flush.messages` and `flush.ms` in terms of `respool.flush`.

| set | means |
|---|---|
| `flush.messages=1` | `respool.flush=always` |
| `flush.ms=n` | `respool.flush=interval`, `respool.flush.interval.ms=n` |
| their maximum, Kafka's default | nothing |

With both, the former holds, as in Kafka: what is synced with every batch is synced in time. A topic's settings override
the broker's defaults, and contradictory settings are refused.
"""

from collections.abc import Mapping
from typing import Any

from respool.model.config_rules import LONG_MAX, ConfigKind, ConfigRule, long_between
from respool.model.errors import InvalidConfig

OFF = LONG_MAX


def flush_messages_rule() -> dict[str, ConfigRule]:
    def parse(text: str) -> int:
        number: int = kafkas.parse(text)
        if number not in (1, OFF):
            raise InvalidConfig(
                f"{number} is refused: batches are synced one by one (1), after a time (flush.ms), or as "
                f"respool.flush says ({OFF}), but not by their number"
            )
        return number

    doc = "1 means respool.flush=always; the maximum changes nothing. Other numbers are refused."
    kafkas = long_between(1, LONG_MAX, doc)["rule"]
    return {"rule": ConfigRule(kind=ConfigKind.LONG, doc=doc, parse=parse)}


def flush_ms_rule() -> dict[str, ConfigRule]:
    return long_between(
        1,
        LONG_MAX,
        "A time means respool.flush=interval with it as respool.flush.interval.ms; the maximum changes nothing.",
    )


def resolve_flush(given: Mapping[str, Any], *, messages: int, ms: int) -> dict[str, Any]:
    """Return the fields that follow from the `given` ones; `messages` and `ms` are inherited.

    Raises:
        InvalidConfig: the given ones contradict each other.
    """
    _check(given)
    found: dict[str, Any] = {}
    if "respool_flush" in given:
        messages = ms = OFF
    elif "respool_flush_interval_ms" in given:
        ms = OFF
    messages, ms = given.get("flush_messages", messages), given.get("flush_ms", ms)
    found |= {"flush_messages": messages, "flush_ms": ms}
    if ms != OFF:
        found["respool_flush_interval_ms"] = ms
    if "respool_flush" not in given and given.keys() & {"flush_messages", "flush_ms"}:
        if messages != OFF:
            found["respool_flush"] = "always"
        elif ms != OFF:
            found["respool_flush"] = "interval"
    return found


def delayed_flush(texts: Mapping[str, str]) -> str | None:
    """The name, of a topic's setting or of its default, by which acks=all is answered before batches are synced.

    `texts` are valid values that are set together.
    """
    for messages, ms in (
        ("flush.messages", "flush.ms"),
        ("log.flush.interval.messages", "log.flush.interval.ms"),
    ):
        is_always = int(texts.get(messages, OFF)) == 1 or texts.get("respool.flush") == "always"
        if ms in texts and int(texts[ms]) != OFF and not is_always:
            return ms
    return "respool.flush" if texts.get("respool.flush") in ("interval", "os") else None


def _check(given: Mapping[str, Any]) -> None:
    flush = given.get("respool_flush")
    messages, ms = given.get("flush_messages", OFF), given.get("flush_ms", OFF)
    every_ms = given.get("respool_flush_interval_ms", ms)
    if flush is not None and messages != OFF and flush != "always":
        raise _contradiction("flush.messages = 1 means respool.flush = always", flush)
    if flush is not None and ms != OFF and messages == OFF and flush != "interval":
        raise _contradiction(f"flush.ms = {ms} means respool.flush = interval", flush)
    if ms not in (OFF, every_ms):
        raise InvalidConfig(
            f"flush.ms = {ms} and respool.flush.interval.ms = {every_ms} contradict each other: set one of them"
        )


def _contradiction(meaning: str, flush: str) -> InvalidConfig:
    return InvalidConfig(f"{meaning}, and respool.flush is set to {flush}: set one of them")
