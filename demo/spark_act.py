"""The second act: the same broker, and Spark. Tables from a topic, fraud scored live, and a new model over three days.

What is in the tables is counted here without Spark, and must be what came out of the topic.
"""

import json
import shutil
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from demo.screen import Counts, console, respool, title
from respool.model.extras import how_to_install

TOPIC = "ride-events"
SCORES = "fraud-scores"
DAYS = 6
REPLAYED_DAYS = 3
DAY_MS = 86_400_000
NEEDED = ("pyspark", "deltalake", "numba", "pyarrow")


def run(address: str, folder: Path, *, events: int, out: Path) -> Counts:
    """Play it, if what it needs is installed. Its reports are kept in `out`."""
    if any(find_spec(name) is None for name in NEEDED):
        title("Spark")
        missing = f"not installed, so this part is left out: {how_to_install('pipeline')}"
        console.print(missing, markup=False)
        return {}
    truth, lake = folder / "truth.parquet", folder / "lake"
    until_ms = time.time_ns() // 1_000_000
    until = datetime.fromtimestamp(until_ms / 1000, UTC).isoformat(timespec="milliseconds")

    title("Six days of rides with fraud, late and broken events in them")
    respool(
        address,
        *("rides", "generate", "--topic", TOPIC, "--days", str(DAYS), "--count", str(events)),
        *("--partitions", "3", "--fraud-share", "0.1", "--until", until, "--truth", str(truth)),
    )
    title("Spark: tables, dashboards, fraud scores; then a new model over three days")
    jobs = ("bronze", "silver", "gold", "fraud", "replay-fraud")
    respool(
        address,
        *("pipeline", "run", *jobs, "--topic", TOPIC, "--data", str(lake), "--master", "local[2]"),
        *("--truth", str(truth), "--model", "v1:logistic", "--new-model", "v2:forest"),
        *("--days", str(REPLAYED_DAYS), "--until", until),
    )
    respool(address, "pipeline", "report", "--data", str(lake), has_broker=False)
    console.print("[dim]the tables go when the demo ends; the reports stay:")
    for kept in keep_reports(lake, out):
        console.print(f"report: {kept}", soft_wrap=True, markup=False)
    since_ms = until_ms - REPLAYED_DAYS * DAY_MS
    return counted(address, lake, truth, events=events, since_ms=since_ms)


def keep_reports(lake: Path, out: Path) -> list[Path]:
    """Copy the reports from a folder that is deleted when the demo ends."""
    out.mkdir(parents=True, exist_ok=True)
    reports = sorted((lake / "reports").glob("*.html"))
    return [Path(shutil.copy(one, out)) for one in reports]


def counted(address: str, lake: Path, truth: Path, *, events: int, since_ms: int) -> Counts:
    """What came out of `events` events, replayed from `since_ms` on, and what must have."""
    from pyarrow import parquet

    from respool import read_table

    bronze, silver = _table(lake, "bronze"), _table(lake, "silver")
    aside = [one["reason"] for one in _table(lake, "quarantine")]
    known = parquet.read_table(truth).to_pylist()
    malformed = sum(one["kind"] == "malformed" for one in known)
    ids = {one["event_id"] for one in silver}
    ended = {one["event_id"]: one["ride_id"] for one in silver if one["event_type"] == "finished"}
    paid = sum(one["event_type"] == "paid" for one in silver)
    scores = read_table(SCORES, bootstrap=address, columns=["key"])["key"].to_pylist()
    again = [one["ride_id"] for one in _table(lake, "fraud_replays")]
    window = {
        ended[event]
        for one in bronze
        if one["timestamp"].timestamp() * 1000 >= since_ms
        and (event := _event_id(one["value"])) in ended
    }
    return {
        "bronze: events, each once": (
            len({(one["partition"], one["offset"]) for one in bronze}),
            events,
        ),
        "silver: events, each once": (len(ids), len(silver)),
        "quarantine: broken events": (sum(one != "late" for one in aside), malformed),
        "gold: rides paid, in all windows": (
            sum(one["rides"] for one in _table(lake, "gold_fares")),
            paid,
        ),
        "fraud: rides scored, in the topic": (len(scores), len(ended)),
        "fraud: rides scored more than once": (len(scores) - len(set(scores)), 0),
        "replay: rides of three days, scored again": (len(set(again)), len(window)),
    }


def _table(lake: Path, name: str) -> list[dict[str, Any]]:
    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.table_schemas import table

    dataset = table(PipelineSettings(data=lake), name).arrow_dataset()
    found: list[dict[str, Any]] = dataset.to_table().to_pylist()
    return found


def _event_id(value: bytes) -> str | None:
    try:
        event = json.loads(value)
    except ValueError:
        return None
    found = event.get("event_id")
    return found if isinstance(found, str) else None
