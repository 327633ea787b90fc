"""Plots are whole SVG, and a report's words cannot become tags."""

import re
from xml.etree import ElementTree as ET

from respool.pipeline import plots

NAME = "<script>Köln & Bonn"


def parts(drawn: str) -> ET.Element:
    found = re.search(r"<svg.*</svg>", drawn)
    assert found is not None
    return ET.fromstring(found[0])


def test_bars_are_as_long_as_their_numbers() -> None:
    drawn = parts(plots.bars([(NAME, 10), ("half", 5)]))
    long, half = (float(one.attrib["width"]) for one in drawn.iter("rect"))
    assert long == 2 * half
    assert next(one.text for one in drawn.iter("text")) == NAME


def test_lines_have_a_point_for_each_step_and_stay_inside() -> None:
    drawn = parts(plots.lines(["a", "b", "c"], [(NAME, [0, 5, 10]), ("flat", [1, 1, 1])]))
    first, second = (one.attrib["points"].split() for one in drawn.iter("polyline"))
    assert len(first) == len(second) == 3
    heights = [float(point.split(",")[1]) for point in first]
    assert heights == sorted(heights, reverse=True)
    assert 0 <= min(heights) <= max(heights) <= plots.HEIGHT


def test_nothing_to_show_is_drawn_as_nothing() -> None:
    assert not list(parts(plots.bars([])).iter("rect"))
    assert parts(plots.lines([], [])) is not None
    drawn = parts(plots.columns(["0.0"], [("live", [0])]))
    assert [one.attrib["height"] for one in drawn.iter("rect")] == ["0.0"]
