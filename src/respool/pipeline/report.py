"""Reports in one HTML file: the pipeline's tables, and a replay compared with live scores. Needs no Spark."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from respool.pipeline import plots
from respool.pipeline.comparison_result import BINS, Comparison, Quality
from respool.pipeline.table_schemas import SCHEMAS, table

if TYPE_CHECKING:
    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.model import About

CITIES_SHOWN = 6
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a202c; max-width: 900px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse }
td, th { padding: .25rem .9rem .25rem 0; text-align: left; border-bottom: 1px solid #e2e8f0 }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; font: 12px system-ui, sans-serif } svg text { fill: #4a5568 }
.key { margin-right: 1.2rem } .key i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem }
"""

_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?%?")

Rows = Sequence[Sequence[object]]


def write_report(settings: "PipelineSettings") -> Path:
    """Write a report of the tables' present content."""
    parts = [_tables(settings)]
    if table(settings, "gold_cities").exists:
        parts += [_demand(settings), _fares(settings)]
    if table(settings, "gold_drivers").exists:
        parts.append(_drivers(settings))
    if table(settings, "quarantine").exists:
        parts.append(_quarantine(settings))
    if table(settings, "fraud_scores").exists:
        parts.append(_scores(settings))
    return _write(settings.report_path("pipeline"), "What the pipeline saw", parts)


def write_replay_report(
    settings: "PipelineSettings",
    comparison: Comparison,
    about: "About",
    *,
    events: int,
    rides: int,
    name: str,
) -> Path:
    """Write a report that compares a replayed model with the live one."""
    since, until = _moment(settings.replay_since_ms), _moment(settings.replay_until_ms)
    neither = comparison.both - (
        comparison.fraud_to_live + comparison.fraud_to_new - comparison.fraud_to_both
    )
    steps = [f"{number / BINS:.2f}" for number in range(BINS)]
    opening = (
        f"<p>Events that arrived from {since} to {until}, scored by <b>{escape(about.name)}</b> "
        f"({escape(about.recipe)}, trained on {about.rides:,} rides that ended before "
        f"{_moment(about.trained_until_ms)}, {about.frauds:,} of them fraud). "
        f"The live scores are those of the topic {escape(settings.scores_topic)}.</p>"
    )
    parts = [
        opening,
        _section(
            "Counted",
            _grid(
                ("", "number"),
                [
                    ("events of the window", events),
                    ("rides scored again", rides),
                    ("of them scored live, too", comparison.both),
                    ("fraud to both", comparison.fraud_to_both),
                    (
                        "fraud to the live model only",
                        comparison.fraud_to_live - comparison.fraud_to_both,
                    ),
                    (
                        "fraud to the new model only",
                        comparison.fraud_to_new - comparison.fraud_to_both,
                    ),
                    ("fraud to neither", neither),
                    ("agreement", f"{comparison.agreement:.2%}"),
                    ("mean difference of scores", f"{comparison.difference_mean:.4f}"),
                ],
            ),
        ),
        _section(
            "Scores",
            plots.columns(
                steps, [("live", comparison.live_histogram), ("new", comparison.new_histogram)]
            ),
        ),
    ]
    if comparison.live_quality is not None and comparison.new_quality is not None:
        parts += [
            _section(
                "Against the truth",
                _grid(
                    ("", "right", "wrong", "missed", "precision", "recall"),
                    [
                        _quality_row("live", comparison.live_quality),
                        _quality_row("new", comparison.new_quality),
                    ],
                ),
            ),
            _section(
                "By pattern", _grid(("", "rides", "found live", "found new"), comparison.patterns)
            ),
        ]
    if comparison.differing:
        parts.append(
            _section(
                "Rides they differ on most",
                _grid(
                    ("ride", "live", "new", "is"),
                    [
                        (ride, f"{live:.3f}", f"{new:.3f}", what)
                        for ride, live, new, what in comparison.differing
                    ],
                ),
            )
        )
    return _write(settings.report_path(f"replay-{name}"), "A new fraud model, replayed", parts)


def _tables(settings: "PipelineSettings") -> str:
    rows = []
    for name in SCHEMAS:
        one = table(settings, name)
        if one.exists:
            delta = one.delta()
            rows.append((name, delta.count(), len(delta.file_uris()), delta.version()))
    return _section("Tables", _grid(("table", "rows", "files", "version"), rows))


def _demand(settings: "PipelineSettings") -> str:
    by_city: dict[str, Counter[datetime]] = defaultdict(Counter)
    for row in _read(settings, "gold_cities", ["window_start", "city", "requested"]):
        by_city[row["city"]][row["window_start"]] += row["requested"]
    hours = sorted({hour for found in by_city.values() for hour in found})
    largest = sorted(by_city, key=lambda city: -by_city[city].total())[:CITIES_SHOWN]
    drawn = plots.lines(
        [f"{hour:%m-%d %H:%M}" for hour in hours],
        [(city, [by_city[city][hour] for hour in hours]) for city in largest],
    )
    return _section("Rides asked for, by window", drawn)


def _fares(settings: "PipelineSettings") -> str:
    total: Counter[tuple[str, str]] = Counter()
    rides: Counter[tuple[str, str]] = Counter()
    for row in _read(settings, "gold_fares", ["city", "currency", "fares", "rides"]):
        total[row["city"], row["currency"]] += row["fares"]
        rides[row["city"], row["currency"]] += row["rides"]
    rows = [
        (city, rides[city, currency], f"{amount:,.2f}", currency)
        for (city, currency), amount in sorted(total.items())
    ]
    return _section("Paid, by city", _grid(("city", "rides", "fares", "currency"), rows))


def _drivers(settings: "PipelineSettings") -> str:
    hours: Counter[str] = Counter()
    for row in _read(settings, "gold_drivers", ["driver_id", "driving_s"]):
        hours[row["driver_id"]] += row["driving_s"]
    busiest = [(driver, seconds / 3600) for driver, seconds in hours.most_common(10)]
    return _section("Most hours driven", plots.bars(busiest, unit=" h"))


def _quarantine(settings: "PipelineSettings") -> str:
    reasons = Counter(row["reason"] for row in _read(settings, "quarantine", ["reason"]))
    return _section("In quarantine, by reason", plots.bars(reasons.most_common()))


def _scores(settings: "PipelineSettings") -> str:
    histogram = histogram_of(row["score"] for row in _read(settings, "fraud_scores", ["score"]))
    steps = [f"{number / BINS:.2f}" for number in range(BINS)]
    return _section("Fraud scores, live", plots.columns(steps, [("rides", histogram)]))


def histogram_of(scores: Iterable[float | None]) -> list[int]:
    """Count scores in `BINS` bins from 0 to 1, ignoring null and NaN."""
    found = [0] * BINS
    for score in scores:
        if score is not None and not isnan(score):
            found[min(BINS - 1, int(score * BINS))] += 1
    return found


def _read(settings: "PipelineSettings", name: str, columns: list[str]) -> list[dict[str, Any]]:
    one = table(settings, name)
    if not one.exists:
        return []
    found: list[dict[str, Any]] = one.arrow_dataset().to_table(columns=columns).to_pylist()
    return found


def _quality_row(name: str, quality: Quality) -> tuple[object, ...]:
    return (
        name,
        quality.right,
        quality.wrong,
        quality.missed,
        f"{quality.precision:.1%}",
        f"{quality.recall:.1%}",
    )


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}"


def _grid(names: Sequence[str], rows: Rows) -> str:
    shown = [[f"{one:,}" if isinstance(one, int) else str(one) for one in row] for row in rows]
    # Numbers are aligned at their last digit, words at their first letter.
    are_numbers = [all(_NUMBER.fullmatch(row[at]) for row in shown) for at in range(len(names))]

    def cells(texts: Sequence[str], tag: str) -> str:
        return "".join(
            f"<{tag}{' class=number' if is_number else ''}>{escape(text)}</{tag}>"
            for text, is_number in zip(texts, are_numbers, strict=True)
        )

    head = cells(names, "th")
    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in shown)
    return f"<table><tr>{head}</tr>{body}</table>"


def _write(path: Path, title: str, parts: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "\n".join(parts)
    path.write_text(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )
    return path


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
