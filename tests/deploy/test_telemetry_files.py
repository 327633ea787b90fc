"""Alerts and dashboard name only metrics, labels and settings that exist, and Prometheus accepts the alerts."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "deploy" / "grafana" / "respool.json"
PAGE = ROOT / "docs" / "metrics.md"
# Of Prometheus itself, and of its client library for Python.
OTHERS = {"up": {"job", "instance"}, "process_cpu_seconds_total": set()}
# What Prometheus adds to every series, and histograms to theirs.
ADDED = {"instance", "job", "le"}


def documented() -> dict[str, set[str]]:
    """The labels of each metric; tests/docs/test_metrics_page.py compares the page with a broker."""
    rows = re.findall(
        r"^\| `(respool_\w+)(?:\{([\w,]+)\})?` \|", PAGE.read_text(), flags=re.MULTILINE
    )
    return {name: set(labels.split(",")) if labels else set() for name, labels in rows}


def expressions() -> list[str]:
    found = re.findall(
        r"^ {8}expr: (?:>-\n((?: {10}.*\n)+)|(?!>-)(.*)$)", ALERTS.read_text(), flags=re.MULTILINE
    )
    alerts = [" ".join((block or line).split()) for block, line in found]
    board = json.loads(DASHBOARD.read_text())
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    variables = [one["definition"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert len(alerts) == ALERTS.read_text().count("- alert:")
    return [*alerts, *panels, *variables]


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_and_label_exists(expression: str) -> None:
    known = {**documented(), **OTHERS}
    names = re.findall(r"\b(respool_\w+|up|process_\w+)\b", expression)
    assert names
    bases = {re.sub(r"_bucket$", "", name) for name in names}
    assert bases - known.keys() == set()
    labels = ADDED.union(*(known[name] for name in bases))
    used = {
        one for group in re.findall(r"\bby \(([^)]*)\)", expression) for one in group.split(", ")
    }
    used |= set(re.findall(r"[{,] ?(\w+)=~?", expression))
    assert used - labels == set()


def test_every_panel_has_a_place_of_its_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert all(x < 24 for x, _ in cells)
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool on the PATH")
@pytest.mark.parametrize("arguments", [("check", "alerts.yaml"), ("test", "alerts_test.yaml")])
def test_promtool_accepts_the_alerts_and_they_fire(arguments: tuple[str, str]) -> None:
    verb, file = arguments
    done = subprocess.run(
        ["promtool", verb, "rules", file],
        cwd=ALERTS.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
