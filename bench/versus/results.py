"""All rows of a run in the order of their first sample, and the same as JSON: from it a report can be made again."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench.versus.row import Row, Unit


@dataclass(slots=True)
class Results:
    # Machine, versions, settings, date, command.
    head: dict[str, Any]
    # What families want to say about how they measured, and what went wrong.
    notes: dict[str, list[str]] = field(default_factory=dict)
    _rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    @property
    def families(self) -> list[str]:
        return list(dict.fromkeys(row.family for row in self))

    def of_family(self, family: str) -> list[Row]:
        return [row for row in self if row.family == family]

    def add(self, family: str, name: str, unit: Unit, contender: str, value: float) -> None:
        row = self._rows.setdefault((family, name), Row(family=family, name=name, unit=unit))
        if row.unit is not unit:
            raise ValueError(f"{family}, {name}: {unit} after {row.unit}")
        row.samples.setdefault(contender, []).append(value)

    def note(self, family: str, text: str) -> None:
        """Once, however often it is said."""
        notes = self.notes.setdefault(family, [])
        if text not in notes:
            notes.append(text)

    def write(self, path: Path) -> None:
        rows = [
            {"family": row.family, "name": row.name, "unit": row.unit, "samples": row.samples}
            for row in self
        ]
        whole = {"head": self.head, "notes": self.notes, "rows": rows}
        path.write_text(json.dumps(whole, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        whole: Mapping[str, Any] = json.loads(path.read_text())
        results = cls(head=dict(whole["head"]), notes=dict(whole["notes"]))
        for row in whole["rows"]:
            for contender, values in row["samples"].items():
                for value in values:
                    results.add(row["family"], row["name"], Unit(row["unit"]), contender, value)
        return results
