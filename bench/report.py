"""Tables on the terminal, and the same figures as JSON to compare two runs."""

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table as RichTable

PACKAGES = ("respool", "uvloop", "kio", "crc32c", "confluent-kafka")
# Figures are wider than most terminals; a file or a pipe has no width at all.
WIDTH_MIN = 150


@dataclass(frozen=True, slots=True)
class Column:
    key: str
    title: str
    show: Callable[[Any], str] = str


@dataclass(slots=True)
class Table:
    """One row family. Rows hold raw numbers; the columns say how to show them, and JSON gets them as they are."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: list[dict[str, Any]] = field(default_factory=list)
    # How to read the table, and what was seen; printed below it.
    notes: list[str] = field(default_factory=list)


class Report:
    def __init__(self, *, settings: Mapping[str, object]) -> None:
        self._console = Console(highlight=False)
        if self._console.width < WIDTH_MIN:
            self._console = Console(highlight=False, width=WIDTH_MIN)
        self._err = Console(stderr=True, highlight=False)
        self._head = _machine() | {"settings": dict(settings)}
        self._tables: list[Table] = []

    def print_head(self) -> None:
        for name, value in self._head.items():
            self._console.print(f"{name:<10} {_text(value)}", markup=False)

    def progress(self, text: str) -> None:
        """What is being measured now; kept apart from the figures."""
        self._err.print(f"  {text}", style="dim", markup=False)

    def add(self, table: Table) -> None:
        self._tables.append(table)
        shown = RichTable(title=table.title, title_justify="left", title_style="bold")
        for index, column in enumerate(table.columns):
            is_text = index == 0 or all(isinstance(row.get(column.key), str) for row in table.rows)
            shown.add_column(column.title, justify="left" if is_text else "right")
        for row in table.rows:
            shown.add_row(*(_cell(column, row.get(column.key)) for column in table.columns))
        self._console.print()
        self._console.print(shown)
        for note in table.notes:
            self._console.print(f"  {note}", markup=False)

    def write_json(self, path: Path) -> None:
        whole = self._head | {
            "tables": [
                {"name": one.name, "title": one.title, "rows": one.rows, "notes": one.notes}
                for one in self._tables
            ]
        }
        path.write_text(json.dumps(whole, indent=1) + "\n")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {one}" for key, one in value.items())
    return str(value)


def _cell(column: Column, value: object) -> str:
    return "-" if value is None else column.show(value)


def _machine() -> dict[str, object]:
    memory_gb = psutil.virtual_memory().total / 2**30
    load = os.getloadavg()[0]
    return {
        "date": datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{os.cpu_count()} cores ({cpu_model()}), {memory_gb:.0f} GB memory, "
        f"Linux {platform.release()}, load before the run {load:.1f}",
        "versions": {"Python": sys.version.split()[0]} | {one: version(one) for one in PACKAGES},
    }


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


# How numbers are shown.


def millions(value: float) -> str:
    return f"{value / 1e6:.2f} M"


def megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f}"


def gigabytes(value: float) -> str:
    return f"{value / 1e9:.2f}"


def mebibytes(value: float) -> str:
    return f"{value / 2**20:,.1f}"


def count(value: float) -> str:
    return f"{value:,.0f}"


def seconds(value: float) -> str:
    return f"{value:.2f}"


def percent(value: float) -> str:
    return f"{value:.0%}"


def percent_fine(value: float) -> str:
    return f"{value:.2%}"


def microseconds(value: float) -> str:
    return f"{value * 1e6:,.0f}"


def milliseconds(value: float) -> str:
    """Of seconds."""
    return f"{value * 1e3:.1f} ms"


def megabytes_fine(value: float) -> str:
    return f"{value / 1e6:.1f}"


def ratio(value: float) -> str:
    return f"{value:.2f}x"


def quantile(samples: Sequence[float], fraction: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * fraction))]
