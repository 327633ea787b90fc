"""Elastic topics: when a topic gets more or fewer partitions that take records, by itself. Pure.

```
 load above the target for a minute           twice as many
 load below half of it, at half as many,
 for an hour                                  half as many
 within a pause after any change              nothing
```
The load is what producers write to the topic, in bytes per second. Between the two limits lies a factor of four, so a
change never makes the opposite one due.
"""

from dataclasses import dataclass

from respool.model.layouts.elastic_mode import ElasticMode

BUSY_MS = 60_000
QUIET_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticRules:
    mode: ElasticMode
    partitions_min: int
    partitions_max: int
    # What one partition should take.
    target_bytes_per_s: int
    # Nothing is changed for this long after a change.
    pause_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    to: int
    # For the log.
    why: str


class ElasticTopic:
    """What is known of one topic's load.

    A new controller waits for a whole pause first: there may have been a change a moment ago.
    """

    def __init__(self, *, now_ms: int) -> None:
        self._changed_at_ms = now_ms
        # Since when the load has been above one limit, or below the other.
        self._busy_since_ms: int | None = None
        self._quiet_since_ms: int | None = None

    def on_changed(self, now_ms: int) -> None:
        """The number of partitions was changed, by whomever."""
        self._changed_at_ms = now_ms
        self._busy_since_ms = self._quiet_since_ms = None

    def on_load(
        self, bytes_per_s: float | None, *, active: int, rules: ElasticRules, now_ms: int
    ) -> Resize | None:
        """Decide what to do, if anything. None as the load: nobody knows it now, so what was seen before is void."""
        if bytes_per_s is None or rules.mode is ElasticMode.OFF:
            self._busy_since_ms = self._quiet_since_ms = None
            return None
        half = _half(active, rules.mode)
        is_busy = bytes_per_s > rules.target_bytes_per_s * active
        is_quiet = half is not None and bytes_per_s * 2 < rules.target_bytes_per_s * half
        self._busy_since_ms = _since(self._busy_since_ms, is_busy, now_ms)
        self._quiet_since_ms = _since(self._quiet_since_ms, is_quiet, now_ms)
        if now_ms - self._changed_at_ms < rules.pause_ms:
            return None
        load = f"{bytes_per_s / 1e6:.1f} MB/s to {active} partitions"
        target = (
            f"respool.elastic.target.bytes.per.second is {rules.target_bytes_per_s / 1e6:.1f} MB/s"
        )
        if _lasts(self._busy_since_ms, BUSY_MS, now_ms) and active * 2 <= rules.partitions_max:
            keys = (
                "" if rules.mode is ElasticMode.UNKEYED else "; keys may move to other partitions"
            )
            return Resize(to=active * 2, why=f"{load} for {BUSY_MS // 1000} s; {target}{keys}")
        if (
            half is not None
            and half >= rules.partitions_min
            and _lasts(self._quiet_since_ms, QUIET_MS, now_ms)
        ):
            return Resize(to=half, why=f"only {load} for {QUIET_MS // 60_000} min; {target}")
        return None


def _half(active: int, mode: ElasticMode) -> int | None:
    """None if half of the partitions would split keys."""
    if active == 1 or (active % 2 and mode is not ElasticMode.UNKEYED):
        return None
    return (active + 1) // 2


def _since(before_ms: int | None, is_so: bool, now_ms: int) -> int | None:
    if not is_so:
        return None
    return now_ms if before_ms is None else before_ms


def _lasts(since_ms: int | None, ms: int, now_ms: int) -> bool:
    return since_ms is not None and now_ms - since_ms >= ms
