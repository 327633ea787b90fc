from collections import Counter
from pathlib import Path

from pyarrow import parquet

from respool.rides.event_table import EventTable
from respool.rides.truth import SCHEMA, RideTally, TruthFile, truth_of
from rides.making import all_events, parsed, plan, well_formed


def test_the_truth_agrees_with_the_tally_and_names_events_that_are_there(day: EventTable) -> None:
    some = day[:, :100_000]
    rows = truth_of(some).to_pylist()
    tally = RideTally()
    tally.add(some)
    found = tally.document()
    kinds = Counter(row["kind"] for row in rows)
    assert kinds["late"] == found["late"]
    assert kinds["duplicate"] == found["duplicates"]
    for kind in ("malformed", "fraud"):
        counted = Counter(row["pattern"] for row in rows if row["kind"] == kind)
        assert dict(counted) == {name: n for name, n in found[kind].items() if n}  # type: ignore[attr-defined]
    events = {
        (one["ride_id"], one["event_id"]): one for one in parsed(plan(count=1), well_formed(some))
    }
    for row in rows:
        if row["kind"] in {"late", "duplicate"} and (row["ride_id"], row["event_id"]) in events:
            assert events[row["ride_id"], row["event_id"]]["event_type"] == row["event_type"]
    rides = {ride for ride, _ in events}
    frauds = [row for row in rows if row["kind"] == "fraud"]
    assert all(row["event_id"] is None for row in frauds)
    assert len({row["ride_id"] for row in frauds}) == len(frauds)
    assert sum(row["ride_id"] in rides for row in frauds) > 0.95 * len(frauds)


def test_a_file_has_all_of_it_whatever_the_pieces(tmp_path: Path) -> None:
    events = all_events(plan(count=5_000, fraud_share=0.1))
    with TruthFile(tmp_path / "truth.parquet") as file:
        file.add(events[:, :1_234])
        file.add(events[:, 1_234:])
    stored = parquet.read_table(tmp_path / "truth.parquet")
    assert stored.schema.equals(SCHEMA)
    order = [(name, "ascending") for name in ("kind", "ride_id", "event_id", "recorded_at")]
    assert stored.sort_by(order).equals(truth_of(events).sort_by(order))
