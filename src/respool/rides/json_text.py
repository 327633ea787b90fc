"""Converts event tables to keys and JSON values of records, with compiled kernels and no object per event.

Kernels here call only functions of this file or of `columnar`, because numba caches compiled kernels by file.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from respool.columnar.compiled import Bytes, Numbers, Places, Word, kernel
from respool.columnar.raw_memory import copy_bytes
from respool.rides.cities import City
from respool.rides.event_table import EventTable
from respool.rides.outcomes import EventType
from respool.rides.ride_maker import DEVICES, PAYMENT_METHODS

SCHEMA_VERSION = 1
# "ride-" and sixteen hexadecimal digits.
KEY_BYTES = 21
# Upper bound of a value: names and punctuation take 270 bytes, numbers of 20 digits and the longest words under 330.
VALUE_BYTES_MAX = 640

# Pieces of text, followed by event types, payment methods, devices, cities, and the cities' currencies.
_PIECES = (
    b'{"event_id":"',
    b'"ride_id":"ride-',
    b'"event_type":"',
    b'"event_time":"',
    b'"city":"',
    b'"rider_id":"rider-',
    b'"driver_id":"driver-',
    b'"driver_id":null,',
    b'"lat":',
    b'"lon":',
    b'"fare":',
    b'"currency":"',
    b'"distance_km":',
    b'"duration_s":',
    b'"surge":',
    b'"payment_method":"',
    b'"device":"',
    b'"schema_version":%d}' % SCHEMA_VERSION,
    b'",',
    b",",
    b"null",
    b"<html><body>502 Bad Gateway</body></html>",
    b"teleported",
    b"yesterday",
    b'"lat":"somewhere",',
    b'"rider_id":',
)
(
    _EVENT_ID,
    _RIDE_ID,
    _EVENT_TYPE,
    _EVENT_TIME,
    _CITY,
    _RIDER_ID,
    _DRIVER_ID,
    _NO_DRIVER,
    _LAT,
    _LON,
    _FARE,
    _CURRENCY,
    _DISTANCE,
    _DURATION,
    _SURGE,
    _PAYMENT,
    _DEVICE,
    _END,
    _QUOTE,
    _COMMA,
    _NULL,
    _GATEWAY,
    _TELEPORTED,
    _YESTERDAY,
    _SOMEWHERE,
    _RIDER_NUMBER,
) = range(len(_PIECES))
# Start indexes of these, passed to kernels in an array: numba would not notice changed lists in other files.
_TYPES, _PAYMENTS, _DEVICES, _CITIES, _CURRENCIES = range(5)

# The fields of `event_table.Field` and the defects of `outcomes.Malformed` as plain numbers for kernels. A test
# compares them.
FIELDS = tuple(range(1, 17))
(
    _F_EVENT_MS,
    _F_RIDE_ID,
    _F_EVENT_ID,
    _F_TYPE,
    _F_CITY,
    _F_RIDER,
    _F_DRIVER,
    _F_LAT,
    _F_LON,
    _F_FARE,
    _F_DISTANCE,
    _F_DURATION,
    _F_SURGE,
    _F_PAYMENT,
    _F_DEVICE,
    _F_MALFORMED,
) = FIELDS
KINDS = tuple(range(1, 9))
(
    _TRUNCATED,
    _NOT_JSON,
    _EMPTY,
    _MISSING_FIELD,
    _WRONG_TYPE,
    _NEGATIVE_FARE,
    _UNKNOWN_EVENT,
    _BAD_TIME,
) = KINDS
# Which field is missing.
_NO_RIDE_ID, _NO_TYPE, _NO_TIME, _NO_CITY = range(4)


class JsonText:
    """Writes events as JSON, for the given cities."""

    def __init__(self, cities: Sequence[City]) -> None:
        words = (
            [event.name.lower() for event in EventType],
            PAYMENT_METHODS,
            DEVICES,
            [city.name for city in cities],
            [city.currency for city in cities],
        )
        pieces = [*_PIECES, *(word.encode() for some in words for word in some)]
        self._firsts = np.cumsum([len(_PIECES), *(len(some) for some in words[:-1])])
        self._text = np.frombuffer(b"".join(pieces), dtype=np.uint8)
        self._at = np.cumsum([0, *(len(piece) for piece in pieces)]).astype(np.int64)

    def keys(self, table: EventTable) -> pa.Array:
        """Use ride ids as keys, so that all events of a ride are in one partition, and in order."""
        rows = table.shape[1]
        out = np.empty(rows * KEY_BYTES, dtype=np.uint8)
        write_keys(table, out)
        ends = np.arange(rows + 1, dtype=np.int32) * np.int32(KEY_BYTES)
        return _binary(out, ends)

    def values(self, table: EventTable) -> pa.Array:
        rows = table.shape[1]
        assert rows * VALUE_BYTES_MAX < 2**31, f"{rows} events in one piece"
        out = np.empty(rows * VALUE_BYTES_MAX, dtype=np.uint8)
        ends = np.zeros(rows + 1, dtype=np.int32)
        write_values(table, self._text, self._at, self._firsts, out, ends)
        return _binary(out[: int(ends[-1])], ends)


def _binary(data: Bytes, ends: Places) -> pa.Array:
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


@kernel
def write_keys(table: Numbers, out: Bytes) -> None:
    at = 0
    for row in range(table.shape[1]):
        for letter in (114, 105, 100, 101, 45):
            out[at] = letter
            at += 1
        at = _hexadecimal(table[_F_RIDE_ID, row], out, at)


@kernel
def write_values(
    table: Numbers, text: Bytes, places: Numbers, firsts: Numbers, out: Bytes, ends: Places
) -> None:
    at = 0
    for row in range(table.shape[1]):
        kind = table[_F_MALFORMED, row]
        if kind == _NOT_JSON:
            at = _piece(text, places, _GATEWAY, out, at)
        elif kind != _EMPTY:
            begin = at
            at = _value(table, row, text, places, firsts, out, at)
            if kind == _TRUNCATED:
                # Cut anywhere after the first field's name, but before the closing brace.
                chosen = (table[_F_EVENT_ID, row] >> 8) & 0xFFFF
                at = begin + 12 + chosen % (at - begin - 12)
        ends[row + 1] = at


@kernel
def _value(
    table: Numbers, row: int, text: Bytes, places: Numbers, firsts: Numbers, out: Bytes, at: int
) -> int:
    at = _what_and_when(table, row, text, places, firsts, out, at)
    at = _who(table, row, text, places, out, at)
    return _where_and_how(table, row, text, places, firsts, out, at)


@kernel
def _what_and_when(
    table: Numbers, row: int, text: Bytes, places: Numbers, firsts: Numbers, out: Bytes, at: int
) -> int:
    kind = table[_F_MALFORMED, row]
    chosen = (table[_F_EVENT_ID, row] >> 8) & 0xFFFF
    missing = chosen % 4 if kind == _MISSING_FIELD else -1
    at = _piece(text, places, _EVENT_ID, out, at)
    at = _hexadecimal(table[_F_EVENT_ID, row], out, at)
    at = _piece(text, places, _QUOTE, out, at)
    if missing != _NO_RIDE_ID:
        at = _piece(text, places, _RIDE_ID, out, at)
        at = _hexadecimal(table[_F_RIDE_ID, row], out, at)
        at = _piece(text, places, _QUOTE, out, at)
    if missing != _NO_TYPE:
        word = _TELEPORTED if kind == _UNKNOWN_EVENT else firsts[_TYPES] + table[_F_TYPE, row]
        at = _word(text, places, _EVENT_TYPE, word, out, at)
    if missing != _NO_TIME:
        if kind == _BAD_TIME:
            at = _word(text, places, _EVENT_TIME, _YESTERDAY, out, at)
        else:
            at = _piece(text, places, _EVENT_TIME, out, at)
            at = _time(table[_F_EVENT_MS, row], out, at)
            at = _piece(text, places, _QUOTE, out, at)
    if missing != _NO_CITY:
        at = _word(text, places, _CITY, firsts[_CITIES] + table[_F_CITY, row], out, at)
    return at


@kernel
def _who(table: Numbers, row: int, text: Bytes, places: Numbers, out: Bytes, at: int) -> int:
    chosen = (table[_F_EVENT_ID, row] >> 8) & 0xFFFF
    if table[_F_MALFORMED, row] == _WRONG_TYPE and chosen % 2:
        at = _piece(text, places, _RIDER_NUMBER, out, at)
        at = _digits(table[_F_RIDER, row], 1, out, at)
        at = _piece(text, places, _COMMA, out, at)
    else:
        at = _piece(text, places, _RIDER_ID, out, at)
        at = _digits(table[_F_RIDER, row], 8, out, at)
        at = _piece(text, places, _QUOTE, out, at)
    if table[_F_DRIVER, row] < 0:
        return _piece(text, places, _NO_DRIVER, out, at)
    at = _piece(text, places, _DRIVER_ID, out, at)
    at = _digits(table[_F_DRIVER, row], 7, out, at)
    return _piece(text, places, _QUOTE, out, at)


@kernel
def _where_and_how(
    table: Numbers, row: int, text: Bytes, places: Numbers, firsts: Numbers, out: Bytes, at: int
) -> int:
    kind = table[_F_MALFORMED, row]
    chosen = (table[_F_EVENT_ID, row] >> 8) & 0xFFFF
    if kind == _WRONG_TYPE and chosen % 2 == 0:
        at = _piece(text, places, _SOMEWHERE, out, at)
    else:
        at = _piece(text, places, _LAT, out, at)
        at = _decimal(table[_F_LAT, row], 5, out, at)
        at = _piece(text, places, _COMMA, out, at)
    at = _piece(text, places, _LON, out, at)
    at = _decimal(table[_F_LON, row], 5, out, at)
    at = _piece(text, places, _COMMA, out, at)
    fare = table[_F_FARE, row]
    if kind == _NEGATIVE_FARE:
        at = _piece(text, places, _FARE, out, at)
        at = _decimal(-fare if fare > 0 else -100 - chosen, 2, out, at)
        at = _piece(text, places, _COMMA, out, at)
    else:
        at = _amount(text, places, _FARE, fare, 2, out, at)
    at = _word(text, places, _CURRENCY, firsts[_CURRENCIES] + table[_F_CITY, row], out, at)
    at = _amount(text, places, _DISTANCE, table[_F_DISTANCE, row], 2, out, at)
    at = _amount(text, places, _DURATION, table[_F_DURATION, row], 0, out, at)
    at = _amount(text, places, _SURGE, table[_F_SURGE, row], 1, out, at)
    at = _word(text, places, _PAYMENT, firsts[_PAYMENTS] + table[_F_PAYMENT, row], out, at)
    at = _word(text, places, _DEVICE, firsts[_DEVICES] + table[_F_DEVICE, row], out, at)
    return _piece(text, places, _END, out, at)


@kernel
def _piece(text: Bytes, places: Numbers, number: int, out: Bytes, at: int) -> int:
    return copy_bytes(text, places[number], places[number + 1], out, at)


@kernel
def _word(text: Bytes, places: Numbers, name: int, word: int, out: Bytes, at: int) -> int:
    """Write a field whose value is one of the pieces, in quotes."""
    at = _piece(text, places, name, out, at)
    at = _piece(text, places, word, out, at)
    return _piece(text, places, _QUOTE, out, at)


@kernel
def _amount(
    text: Bytes, places: Numbers, name: int, value: int, decimals: int, out: Bytes, at: int
) -> int:
    """Write a field whose value is a number, or null if it is negative."""
    at = _piece(text, places, name, out, at)
    at = _piece(text, places, _NULL, out, at) if value < 0 else _decimal(value, decimals, out, at)
    return _piece(text, places, _COMMA, out, at)


@kernel
def _decimal(value: int, decimals: int, out: Bytes, at: int) -> int:
    """Write 1234 with two decimals as 12.34."""
    if value < 0:
        out[at] = 45
        at += 1
        value = -value
    scale = 1
    for _ in range(decimals):
        scale *= 10
    at = _digits(value // scale, 1, out, at)
    if decimals:
        out[at] = 46
        at = _digits(value % scale, decimals, out, at + 1)
    return at


@kernel
def _digits(value: int, width: int, out: Bytes, at: int) -> int:
    """Write at least `width` digits, with leading zeros."""
    count = 1
    rest = value // 10
    while rest:
        count += 1
        rest //= 10
    count = max(count, width)
    for place in range(at + count - 1, at - 1, -1):
        out[place] = 48 + value % 10
        value //= 10
    return at + count


@kernel
def _hexadecimal(word: Word, out: Bytes, at: int) -> int:
    """Write sixteen hexadecimal digits."""
    for place in range(at + 15, at - 1, -1):
        digit = word & 15
        out[place] = 48 + digit if digit < 10 else 87 + digit
        word >>= 4
    return at + 16


@kernel
def _time(ms: int, out: Bytes, at: int) -> int:
    """Write a time as 2026-11-12T08:00:00.000Z."""
    days = ms // 86_400_000
    rest = ms - days * 86_400_000
    # Years begin on 1 March, so that a leap day is the last day of its year; eras have 400 years.
    days += 719_468
    era = days // 146_097
    day_of_era = days - era * 146_097
    year_of_era = (
        day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    year = year_of_era + era * 400
    if month >= 10:
        year += 1
        month -= 9
    else:
        month += 3
    at = _digits(year, 4, out, at)
    out[at] = 45
    at = _digits(month, 2, out, at + 1)
    out[at] = 45
    at = _digits(day, 2, out, at + 1)
    out[at] = 84
    at = _digits(rest // 3_600_000, 2, out, at + 1)
    out[at] = 58
    at = _digits(rest // 60_000 % 60, 2, out, at + 1)
    out[at] = 58
    at = _digits(rest // 1_000 % 60, 2, out, at + 1)
    out[at] = 46
    at = _digits(rest % 1_000, 3, out, at + 1)
    out[at] = 90
    return at + 1
