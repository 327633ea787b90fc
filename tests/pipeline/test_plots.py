"""Plots are whole SVG, and a report's words cannot become tags."""

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from respool.pipeline import plots

# Of the report's font (12px), above its baseline.
GLYPH_HEIGHT = 9
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


def label_span(text: ET.Element) -> tuple[float, float]:
    x, width = float(text.attrib["x"]), len(text.text or "") * plots.GLYPH_WIDTH
    before = {"end": width, "middle": width / 2}.get(text.attrib.get("text-anchor", ""), 0)
    return x - before, x - before + width


def test_every_label_is_whole_inside_the_picture_and_beside_the_others() -> None:
    hours = [f"11-{day:02} {hour:02}:00" for day in range(12, 18) for hour in range(24)]
    scores = [f"{number / 20:.2f}" for number in range(20)]
    for drawn in (
        plots.lines(hours, [("Lagos", [1_234] * len(hours))]),
        plots.columns(scores, [("live", [123_456] * 20), ("new", [1] * 20)]),
        plots.bars([("driver-" * 9, 123_456.0)], unit=" h"),
    ):
        rows: dict[str, list[tuple[float, float]]] = {}
        for text in parts(drawn).iter("text"):
            rows.setdefault(text.attrib["y"], []).append(label_span(text))
        for spans in rows.values():
            assert min(spans)[0] >= 0
            assert max(end for _, end in spans) <= plots.WIDTH
            assert all(end <= start for (_, end), (start, _) in pairwise(sorted(spans)))


def test_a_log_axis_begins_at_one_and_ends_at_a_power_of_ten() -> None:
    drawn = parts(plots.columns(["a", "b", "c", "d"], [("live", [0, 1, 100, 2_500])]))
    ticks = [one.text for one in drawn.iter("text") if one.attrib.get("class") == "tick"]
    assert ticks == ["1", "10", "100", "1,000", "10,000"]
    none, one, hundred, many = (float(bar.attrib["height"]) for bar in drawn.iter("rect"))
    assert none == 0 < one < hundred < many
    assert hundred == pytest.approx((plots.HEIGHT - 44) / 2, abs=0.1)


def test_the_name_of_a_series_is_above_its_line_not_on_it() -> None:
    drawn = parts(plots.lines(["a", "b"], [("first", [9, 9]), ("second", [9, 0])]))
    names = {one.text: float(one.attrib["y"]) for one in drawn.iter("text")}
    for name, line in zip(("first", "second"), drawn.iter("polyline"), strict=True):
        highest = min(float(point.split(",")[1]) for point in line.attrib["points"].split())
        assert names[name] < highest
        assert names[name] - GLYPH_HEIGHT >= 0
    lowest = max(
        float(point.split(",")[1])
        for point in next(drawn.iter("polyline")).attrib["points"].split()
    )
    assert names["second"] - GLYPH_HEIGHT > lowest


def test_lines_of_two_series_do_not_cross() -> None:
    drawn = parts(plots.lines(["a", "b"], [("up", [0, 9]), ("down", [9, 0])]))
    up, down = (
        [tuple(map(float, point.split(","))) for point in one.attrib["points"].split()]
        for one in drawn.iter("polyline")
    )
    assert max(y for _, y in up) < min(y for _, y in down)
    assert up == sorted(up)
    assert [x for x, _ in down] == sorted(x for x, _ in down)
