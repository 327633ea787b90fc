import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from respool.rides.cities import CITIES, cities_from
from respool.rides.event_table import EventTable, Field
from respool.rides.json_text import FIELDS, KINDS, VALUE_BYTES_MAX
from respool.rides.outcomes import EventType, Malformed
from respool.rides.ride_maker import DEVICES, PAYMENT_METHODS
from rides.making import all_events, parsed, plan, records, well_formed

WORD = (1 << 64) - 1


def expected(event: list[int]) -> dict[str, Any]:
    """The same event, by Python's own means."""

    def amount(field: Field, scale: int) -> float | int | None:
        if event[field] < 0:
            return None
        return event[field] if scale == 1 else event[field] / scale

    city = CITIES[event[Field.CITY]]
    driver = event[Field.DRIVER]
    moment = datetime.fromtimestamp(event[Field.EVENT_MS] // 1000, UTC)
    return {
        "event_id": f"{event[Field.EVENT_ID] & WORD:016x}",
        "ride_id": f"ride-{event[Field.RIDE_ID] & WORD:016x}",
        "event_type": EventType(event[Field.TYPE]).name.lower(),
        "event_time": f"{moment:%Y-%m-%dT%H:%M:%S}.{event[Field.EVENT_MS] % 1000:03}Z",
        "city": city.name,
        "rider_id": f"rider-{event[Field.RIDER]:08}",
        "driver_id": None if driver < 0 else f"driver-{driver:07}",
        "lat": event[Field.LAT] / 100_000,
        "lon": event[Field.LON] / 100_000,
        "fare": amount(Field.FARE, 100),
        "currency": city.currency,
        "distance_km": amount(Field.DISTANCE, 100),
        "duration_s": amount(Field.DURATION, 1),
        "surge": amount(Field.SURGE, 10),
        "payment_method": PAYMENT_METHODS[event[Field.PAYMENT]],
        "device": DEVICES[event[Field.DEVICE]],
        "schema_version": 1,
    }


@pytest.fixture(scope="module")
def some() -> EventTable:
    return all_events(plan(count=20_000, malformed_share=0.1))


def test_well_formed_events_are_json_and_say_what_the_table_says(some: EventTable) -> None:
    sound = well_formed(some)
    assert parsed(plan(count=1), sound) == [expected(event) for event in sound.T.tolist()]


def test_some_cities_have_their_own_names_and_currencies() -> None:
    wanted = plan(count=300, cities=cities_from("Malmö,Bonn"), malformed_share=0)
    found = {(one["city"], one["currency"]) for one in parsed(wanted, all_events(wanted))}
    assert found == {("Malmö", "SEK"), ("Bonn", "EUR")}


def test_values_are_compact_and_their_fields_are_always_in_the_same_order(some: EventTable) -> None:
    sound = well_formed(some)[:, :500]
    for value in records(plan(count=1), sound)["value"].to_pylist():
        # Numbers keep their decimals, as in 12.50, which Python does not.
        text = json.dumps(json.loads(value), ensure_ascii=False, separators=(",", ":"))
        as_written = re.sub(r"(\.\d*?[1-9]|\.0)0*(?=,)", r"\1", value.decode())
        assert as_written == text


@pytest.mark.parametrize("year", [1970, 1972, 1999, 2000, 2024, 2100, 2400, 9990])
def test_times_are_written_as_the_calendar_has_them(year: int, some: EventTable) -> None:
    days = [(1, 1), (2, 28), (3, 1), (12, 31), (7, 4)]
    if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        days.append((2, 29))
    moments = [datetime(year, *day, 23, 59, 58, tzinfo=UTC) for day in days]
    table = np.ascontiguousarray(well_formed(some)[:, : len(moments)])
    table[Field.EVENT_MS] = [int(moment.timestamp()) * 1000 + 7 for moment in moments]
    written = [event["event_time"] for event in parsed(plan(count=1), table)]
    assert written == [f"{moment:%Y-%m-%dT%H:%M:%S}.007Z" for moment in moments]


def test_numbers_are_written_exactly_whatever_their_size_and_sign(some: EventTable) -> None:
    table = np.ascontiguousarray(well_formed(some)[:, :4])
    table[Field.LON] = [-1, -17_999_999, 0, 5]
    table[Field.FARE] = [0, 5, 1_234_567_890, 100]
    table[Field.RIDER] = [0, 123_456_789, 9_999_999_999, 7]
    found = parsed(plan(count=1), table)
    assert [event["lon"] for event in found] == [-0.00001, -179.99999, 0.0, 0.00005]
    assert [event["fare"] for event in found] == [0.0, 0.05, 12_345_678.9, 1.0]
    assert found[2]["rider_id"] == "rider-9999999999"


def test_the_longest_event_has_room(some: EventTable) -> None:
    table = np.ascontiguousarray(well_formed(some)[:, :12])
    for field in (Field.RIDER, Field.DRIVER, Field.FARE, Field.DISTANCE, Field.DURATION):
        table[field] = 2**63 - 1
    table[Field.LAT] = table[Field.LON] = -(2**63 - 1)
    table[Field.SURGE] = 2**63 - 1
    table[Field.CITY] = np.arange(12)
    table[Field.PAYMENT], table[Field.DEVICE] = 3, 1
    longest = max(map(len, records(plan(count=1), table)["value"].to_pylist()))
    assert longest < VALUE_BYTES_MAX


NOT_EVEN_JSON: dict[Malformed, Callable[[bytes], bool]] = {
    Malformed.EMPTY: lambda value: value == b"",
    Malformed.NOT_JSON: lambda value: value.startswith(b"<html>"),
    Malformed.TRUNCATED: lambda value: value.startswith(b'{"event_id":'),
}
# What the one field that differs is called, and what stands in it; `...` for nothing at all.
ONE_FIELD: dict[Malformed, Callable[[str, Any], bool]] = {
    Malformed.MISSING_FIELD: lambda name, now: (
        now is ... and name in {"ride_id", "event_type", "event_time", "city"}
    ),
    Malformed.WRONG_TYPE: lambda name, now: (
        (name == "lat" and now == "somewhere") or (name == "rider_id" and type(now) is int)
    ),
    Malformed.NEGATIVE_FARE: lambda name, now: name == "fare" and now < 0,
    Malformed.UNKNOWN_EVENT: lambda name, now: name == "event_type" and now == "teleported",
    Malformed.BAD_TIME: lambda name, now: name == "event_time" and now == "yesterday",
}


@pytest.mark.parametrize("kind", [kind for kind in Malformed if kind])
def test_malformed_events_are_broken_in_the_way_that_is_counted(
    kind: Malformed, some: EventTable
) -> None:
    broken = np.ascontiguousarray(some[:, some[Field.MALFORMED] == kind])
    assert broken.shape[1] > 100
    values = records(plan(count=1), broken)["value"].to_pylist()
    for value, event in zip(values, broken.T.tolist(), strict=True):
        if kind in NOT_EVEN_JSON:
            assert NOT_EVEN_JSON[kind](value)
            with pytest.raises(json.JSONDecodeError):
                json.loads(value)
            continue
        found, honest = json.loads(value), expected(event)
        (name,) = (name for name in honest if found.get(name, ...) != honest[name])
        assert ONE_FIELD[kind](name, found.get(name, ...))


def test_records_have_the_ride_as_key_and_the_type_as_header(some: EventTable) -> None:
    batch = records(plan(count=1), some)
    assert batch.schema.names == ["key", "value", "timestamp", "headers"]
    first = some[:, 0].tolist()
    assert batch["key"][0].as_py() == f"ride-{first[Field.RIDE_ID] & WORD:016x}".encode()
    assert batch["timestamp"].cast("int64").to_pylist() == some[Field.ARRIVED_MS].tolist()
    assert batch["headers"][0].as_py() == [
        {"key": "event_type", "value": EventType(first[Field.TYPE]).name.lower().encode()},
        {"key": "schema_version", "value": b"1"},
    ]


def test_nothing_of_the_truth_stands_in_events(some: EventTable) -> None:
    sound = well_formed(some)
    innocent = sound.copy()
    innocent[Field.MARKS] = 0
    assert records(plan(count=1), sound).equals(records(plan(count=1), innocent))


def test_kernels_count_rows_and_kinds_as_everyone_does() -> None:
    assert tuple(FIELDS) == tuple(range(Field.EVENT_MS, Field.MARKS))
    assert tuple(KINDS) == tuple(kind for kind in Malformed if kind)
