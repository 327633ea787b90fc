"""What Kafka's performance tools print.

```
producer: 2000000 records sent, 936329.588015 records/sec (89.30 MB/sec), 130.54 ms avg latency, 343.00 ms max ...
          1500000 steady state records sent, 1212611.156023 records/sec (115.64 MB/sec), ...
consumer: start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, ...
          2026-11-15 23:12:48:978, 2026-11-15 23:12:57:810, 572.2046, 64.7877, 6000000, 679347.8261, 4842, ...
```
"""

import re

_STEADY = re.compile(r"^(\d+) steady state records sent, ([\d.]+) records/sec", re.MULTILINE)
_WHOLE = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)
_CONSUMED = "data.consumed.in.nMsg"
# Without the time in which the group forms.
_CONSUMED_PER_S = "fetch.nMsg.sec"


class UnknownOutput(Exception):
    """A tool printed something else than expected."""


def produced_per_s(output: str) -> float:
    """The rate after the warm-up, or of everything where there was none.

    Raises:
        UnknownOutput: there is no rate.
    """
    # Without a warm-up there are also lines for every few seconds; the last one is the whole.
    found = _STEADY.findall(output) or _WHOLE.findall(output)
    if not found:
        raise UnknownOutput(f"no rate in what the producer tool printed: {output.strip()[-500:]!r}")
    return float(found[-1][1])


def consumed(output: str) -> tuple[int, float]:
    """How many messages, and how many a second.

    Raises:
        UnknownOutput: there is no table with both.
    """
    lines = [line for line in output.splitlines() if line.count(",") > 5]
    if len(lines) != 2:
        raise UnknownOutput(
            f"no table in what the consumer tool printed: {output.strip()[-500:]!r}"
        )
    titles, values = ([cell.strip() for cell in line.split(",")] for line in lines)
    found = dict(zip(titles, values, strict=True))
    try:
        return int(found[_CONSUMED]), float(found[_CONSUMED_PER_S])
    except KeyError as error:
        raise UnknownOutput(f"the consumer tool's table has no column {error}") from error


def complaints(errors: str) -> list[str]:
    """Log lines of a tool that are warnings or worse, without what differs from run to run."""
    found = [line for line in errors.splitlines() if " WARN " in line or " ERROR " in line]
    return list(dict.fromkeys(re.sub(r"\d+", "#", line) for line in found))
