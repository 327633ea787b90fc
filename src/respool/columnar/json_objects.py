"""JSON texts checked and rewritten by compiled kernels: one object per line, with its row number and known members.

```
{"id": 7, "new": [1], "at": {"x": 1}}   ->   {"#respool":0,"id":7,"at":{"x": 1}}\n      and aside: "new":[1]
```
So a parser that reads lines cannot shift rows: only single objects reach it, and each line
says which row it is. The rest of the grammar (numbers, escapes, matching brackets) is left to that parser.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from respool.columnar.compiled import Bytes, Numbers, kernel, part_of_kernels

ROW_FIELD = "#respool"
# What became of a value.
GOOD, NOTHING, NO_OBJECT, TWO_DOCUMENTS, TOO_DEEP, NOT_UTF8, MALFORMED, ESCAPED_NAME = range(8)
# A line is longer than its value by this at most: the row number, and the line's end.
_MORE_PER_ROW = 40
_PREFIX = np.frombuffer(b'{"' + ROW_FIELD.encode() + b'":', np.uint8)

_QUOTE, _BACKSLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2C, 0x3A
_OPEN, _CLOSE, _OPEN_LIST, _CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
# 1 for the bytes at which the scan of a string stops: quotes, backslashes, controls, and all beyond ASCII.
_KINDS = np.array(
    [byte < 0x20 or byte in {_QUOTE, _BACKSLASH} or byte >= 0x80 for byte in range(256)], np.uint8
)

# Results per row.
STATUS, LINE_END, REST_END = range(3)
ROW_RESULTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLines:
    """The values of a column, rewritten."""

    # GOOD, or why there is no line for the row.
    status: Numbers
    # The end of each row's line in `text`, and of its members aside in `rest`; without those, the end of the row
    # before.
    line_ends: Numbers
    rest_ends: Numbers
    text: Bytes
    rest: Bytes

    def lines(self, begin: int, end: int) -> bytes:
        """The lines of the rows [begin, end)."""
        return self.text[
            self._start(self.line_ends, begin) : self._start(self.line_ends, end)
        ].tobytes()

    def rest_of(self, row: int) -> bytes:
        """The members aside of a row, separated by commas; empty if there are none."""
        return self.rest[self._start(self.rest_ends, row) : self.rest_ends[row]].tobytes()

    @staticmethod
    def _start(ends: Numbers, row: int) -> int:
        return int(ends[row - 1]) if row else 0


def json_lines(
    data: Bytes,
    ends: NDArray[np.int32],
    valid: NDArray[np.bool_],
    names: Sequence[str],
    *,
    depth_max: int,
) -> JsonLines:
    """Rewrite the values data[ends[i]:ends[i + 1]]; `names` are the known members."""
    rows = len(valid)
    total = int(ends[-1] - ends[0]) if rows else 0
    text = np.empty(total + _MORE_PER_ROW * rows, np.uint8)
    rest = np.empty(total + 8 * rows, np.uint8)
    results = np.empty((ROW_RESULTS, max(rows, 1)), np.int64)
    encoded = [one.encode() for one in names]
    # At least one, which no member has: control characters in names are escaped.
    encoded = encoded or [b"\0"]
    known = np.frombuffer(b"".join(encoded), np.uint8)
    known_ends = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    _rewrite(data, ends, valid, known, known_ends, depth_max, _KINDS, _PREFIX, text, rest, results)
    return JsonLines(
        status=results[STATUS, :rows],
        line_ends=results[LINE_END, :rows],
        rest_ends=results[REST_END, :rows],
        text=text,
        rest=rest,
    )


@part_of_kernels
def _after_space(data: Bytes, at: int, end: int) -> int:
    while at < end and (
        data[at] == 0x20 or data[at] == 0x09 or data[at] == 0x0A or data[at] == 0x0D
    ):
        at += 1
    return at


@kernel
def _after_utf8(data: Bytes, at: int, end: int) -> int:
    """The position after one character beyond ASCII; -1 if it is malformed."""
    first = data[at]
    if 0xC2 <= first <= 0xDF:
        more, low, high = 1, 0x80, 0xBF
    elif 0xE0 <= first <= 0xEF:
        more, low, high = 2, 0x80, 0xBF
        if first == 0xE0:
            low = 0xA0
        elif first == 0xED:
            high = 0x9F
    elif 0xF0 <= first <= 0xF4:
        more, low, high = 3, 0x80, 0xBF
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    else:
        return -1
    if at + more >= end:
        return -1
    if data[at + 1] < low or data[at + 1] > high:
        return -1
    for place in range(at + 2, at + more + 1):
        if data[place] < 0x80 or data[place] > 0xBF:
            return -1
    return at + more + 1


@part_of_kernels
def _after_string(data: Bytes, at: int, end: int, kinds: Bytes) -> int:
    """The position after a string whose first character is at `at`; negative: why not."""
    while True:
        while at < end and kinds[data[at]] == 0:
            at += 1
        if at >= end:
            return -MALFORMED
        byte = data[at]
        if byte == _QUOTE:
            return at + 1
        if byte == _BACKSLASH:
            at += 2
        elif byte < 0x20:
            return -MALFORMED
        else:
            at = _after_utf8(data, at, end)
            if at < 0:
                return -NOT_UTF8


@part_of_kernels
def _after_value(data: Bytes, at: int, end: int, depth_max: int, kinds: Bytes) -> int:
    """The position of the comma or bracket that ends the value of a member; negative: why not."""
    depth = 1
    while at < end:
        byte = data[at]
        if byte == _QUOTE:
            at = _after_string(data, at + 1, end, kinds)
            if at < 0:
                return at
            continue
        if byte == _COMMA:
            if depth == 1:
                return at
        elif byte in (_OPEN, _OPEN_LIST):
            depth += 1
            if depth > depth_max:
                return -TOO_DEEP
        elif byte in (_CLOSE, _CLOSE_LIST):
            depth -= 1
            if depth == 0:
                return at
        elif byte >= 0x80 or byte == 0:
            return -NOT_UTF8 if byte >= 0x80 and _after_utf8(data, at, end) < 0 else -MALFORMED
        at += 1
    return -MALFORMED


@part_of_kernels
def _is_name(data: Bytes, begin: int, end: int, known: Bytes, low: int, high: int) -> bool:
    """True if the text after a quote is this known name, and the quote that ends it."""
    length = high - low
    if begin + length >= end or data[begin + length] != _QUOTE:
        return False
    for place in range(length):  # noqa: SIM110 - a kernel has no generators
        if known[low + place] != data[begin + place]:
            return False
    return True


@kernel
def _index_of(data: Bytes, begin: int, end: int, known: Bytes, known_ends: Numbers) -> int:
    """The index of a known name, which begins after its quote; or -1."""
    for index in range(known_ends.shape[0] - 1):
        if _is_name(data, begin, end, known, known_ends[index], known_ends[index + 1]):
            return index
    return -1


@kernel
def _copy(data: Bytes, begin: int, end: int, target: Bytes, at: int) -> int:
    """Copy members; line ends, which are outside strings, become spaces."""
    for place in range(end - begin):
        byte = data[begin + place]
        target[at + place] = 0x20 if byte in (0x0A, 0x0D) else byte
    return at + end - begin


@kernel
def _rewrite_one(  # noqa: PLR0911, PLR0912, PLR0915 - one pass over an object's grammar
    data: Bytes,
    begin: int,
    end: int,
    row: int,
    known: Bytes,
    known_ends: Numbers,
    depth_max: int,
    kinds: Bytes,
    prefix: Bytes,
    text: Bytes,
    rest: Bytes,
    at: int,
    rest_at: int,
) -> tuple[int, int, int]:
    """Return the status, and the ends of the line and of the members aside."""
    place = _after_space(data, begin, end)
    if place >= end:
        return NOTHING, at, rest_at
    if data[place] != _OPEN:
        return NO_OBJECT, at, rest_at
    place = _after_space(data, place + 1, end)
    rest_begin = rest_at
    for number in range(prefix.shape[0]):
        text[at] = prefix[number]
        at += 1
    digits = 1
    while row >= digits * 10:
        digits *= 10
    while digits > 0:
        text[at] = 0x30 + (row // digits) % 10
        at += 1
        digits //= 10
    expected = 0
    # Known members in a row are copied together.
    run_begin, run_end = -1, -1
    is_first = True
    while True:
        if place >= end:
            return MALFORMED, at, rest_at
        if data[place] == _CLOSE and is_first:
            break
        if data[place] != _QUOTE:
            return MALFORMED, at, rest_at
        is_first = False
        name_begin = place
        index = expected
        low, high = known_ends[expected], known_ends[expected + 1]
        if _is_name(data, name_begin + 1, end, known, low, high):
            name_end = name_begin + 2 + high - low
        else:
            index = _index_of(data, name_begin + 1, end, known, known_ends)
            name_end = _after_string(data, name_begin + 1, end, kinds)
            if name_end < 0:
                return -name_end, at, rest_at
        place = _after_space(data, name_end, end)
        if place >= end or data[place] != _COLON:
            return MALFORMED, at, rest_at
        place = _after_value(data, place + 1, end, depth_max, kinds)
        if place < 0:
            return -place, at, rest_at
        if index >= 0:
            expected = index + 1 if index + 2 < known_ends.shape[0] else 0
            if run_begin < 0:
                run_begin = name_begin
            run_end = place
        else:
            for number in range(name_begin, name_end):
                if data[number] == _BACKSLASH:
                    return ESCAPED_NAME, at, rest_at
            if run_begin >= 0:
                text[at] = _COMMA
                at = _copy(data, run_begin, run_end, text, at + 1)
                run_begin = -1
            if rest_at > rest_begin:
                rest[rest_at] = _COMMA
                rest_at += 1
            rest_at = _copy(data, name_begin, place, rest, rest_at)
        if data[place] == _COMMA:
            place = _after_space(data, place + 1, end)
            continue
        if data[place] != _CLOSE:
            return MALFORMED, at, rest_at
        break
    if _after_space(data, place + 1, end) < end:
        return TWO_DOCUMENTS, at, rest_at
    if run_begin >= 0:
        text[at] = _COMMA
        at = _copy(data, run_begin, run_end, text, at + 1)
    text[at] = _CLOSE
    text[at + 1] = 0x0A
    return GOOD, at + 2, rest_at


@kernel
def _rewrite(
    data: Bytes,
    ends: NDArray[np.int32],
    valid: NDArray[np.bool_],
    known: Bytes,
    known_ends: Numbers,
    depth_max: int,
    kinds: Bytes,
    prefix: Bytes,
    text: Bytes,
    rest: Bytes,
    results: Numbers,
) -> None:
    at = 0
    rest_at = 0
    for row in range(valid.shape[0]):
        status = NOTHING
        if valid[row]:
            status, line_end, rest_end = _rewrite_one(
                data,
                ends[row],
                ends[row + 1],
                row,
                known,
                known_ends,
                depth_max,
                kinds,
                prefix,
                text,
                rest,
                at,
                rest_at,
            )
            if status == GOOD:
                at, rest_at = line_end, rest_end
        results[STATUS, row] = status
        results[LINE_END, row] = at
        results[REST_END, row] = rest_at
