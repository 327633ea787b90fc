"""Validates a request's bytes against its schema before kio decodes them.

kio decodes natively and fast, but trusts its input: it allocates memory for the announced number of array items, and if
that fails, Rust aborts the process. Five bytes from anyone would stop a broker. So kio gets only validated bytes:

- an array has no more items than fit the remaining bytes, and a request at most `ARRAY_ITEMS_MAX` in total, since an
  item may take two bytes on the wire and some hundred in memory;
- null occurs only where the schema allows it;
- a tagged field has the size it announces.

kio also fails on unknown tagged fields, which newer clients may send to any broker (KIP-482). The walk records their
positions, and `without_unknown_tags` removes them.

Invariant: the walk and kio see the same fields at the same positions. A fuzz test compares where both end.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from struct import Struct

from kio.serial import entity_reader
from kio.serial.errors import SerialError

from respool.wire.protocol_errors import RequestMalformed
from respool.wire.schema import Entity, EntityClass, FieldSchema, is_flexible, schema_of

# A request with every partition of a large cluster has about ten thousand.
ARRAY_ITEMS_MAX = 100_000


class BadBytes(ValueError):
    """The bytes do not match the schema. `IndexError` and `struct.error` mean that they end too early."""


@dataclass(slots=True)
class Walk:
    """The state of one walk."""

    items_left: int = ARRAY_ITEMS_MAX
    # Sections of tagged fields with unknown ones, to be rewritten: start, end, replacement. In order.
    rewrites: list[tuple[int, int, bytes]] = field(default_factory=list)

    def without_unknown_tags(self, frame: memoryview, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`, rewritten."""
        pieces: list[bytes | memoryview] = []
        for section_start, section_end, replacement in self.rewrites:
            pieces += (frame[start:section_start], replacement)
            start = section_end
        pieces.append(frame[start:end])
        return b"".join(pieces)


# Skips something at a position and returns the following position, possibly beyond the end of the frame: then the next
# step fails, and the last one is checked.
Step = Callable[[memoryview, int, Walk], int]
# Creates a step that first skips the fixed fields before it.
MakeStep = Callable[[int], Step]


@dataclass(frozen=True, slots=True, kw_only=True)
class StructWalker:
    """The steps of one kio class."""

    steps: tuple[Step, ...]
    # Minimum size in bytes.
    bytes_min: int
    # True if it always has that size, unknown tagged fields aside.
    is_fixed: bool

    def walk_over(self, frame: memoryview, position: int, walk: Walk) -> int:
        for step in self.steps:
            position = step(frame, position, walk)
        return position


@cache
def walker_of(entity_class: EntityClass) -> StructWalker:
    schema = schema_of(entity_class)
    flexible = is_flexible(entity_class)
    parts = [_part(item, flexible=flexible) for item in schema if item.tag is None]
    tagged = [item for item in schema if item.tag is not None]
    is_fixed = not tagged and all(part.make is None for part in parts)
    if flexible:
        parts.append(_tagged_part(tagged))
    return StructWalker(
        steps=tuple(_steps(parts)),
        bytes_min=sum(part.bytes_min for part in parts),
        is_fixed=is_fixed,
    )


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """Return the position after a section of tagged fields, all unknown. May raise like a walk."""
    return _over_tagged_fields(frame, position, Walk(), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One field."""

    bytes_min: int
    # None for a field of fixed size.
    make: MakeStep | None = None


def _steps(parts: Iterable[_Part]) -> Iterator[Step]:
    skip = 0
    for part in parts:
        if part.make is None:
            skip += part.bytes_min
        else:
            yield part.make(skip)
            skip = 0
    if skip:
        yield lambda _frame, position, _walk: position + skip


_FIXED_BYTES = {
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "bool": 1,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}


def _part(item: FieldSchema, *, flexible: bool) -> _Part:
    if item.is_array:
        return _array_part(item, flexible=flexible)
    if item.struct is not None:
        return _struct_part(walker_of(item.struct), is_nullable=item.is_nullable)
    return _plain_part(item, flexible=flexible)


def _plain_part(item: FieldSchema, *, flexible: bool) -> _Part:
    """The field, or one item of it if it is an array."""
    if item.kind in _FIXED_BYTES:
        return _Part(bytes_min=_FIXED_BYTES[item.kind])
    assert item.kind in {"string", "bytes", "records"}, item
    if flexible:
        return _Part(bytes_min=1, make=_compact_bytes)
    if item.kind == "string":
        return _Part(bytes_min=2, make=partial(_legacy_bytes, Struct(">h")))
    return _Part(bytes_min=4, make=partial(_legacy_bytes, Struct(">i")))


# Strings and bytes:
#   flexible   | length + 1, varint | bytes |      0: null
#   before     | length, 2 or 4     | bytes |     -1: null      2 for strings, 4 for bytes and records
# kio checks whether null is allowed here.


def _compact_bytes(skip: int) -> Step:
    def step(frame: memoryview, position: int, _walk: Walk) -> int:
        position += skip
        length = frame[position]
        if length < 0x80:
            return position + (length or 1)
        length, position = read_varint(frame, position)
        # A careless writer may encode a zero in two bytes.
        return position + max(length - 1, 0)

    return step


def _legacy_bytes(layout: Struct, skip: int) -> Step:
    unpack_from, size = layout.unpack_from, layout.size

    def step(frame: memoryview, position: int, _walk: Walk) -> int:
        position += skip
        length: int = unpack_from(frame, position)[0]
        if length < -1:
            raise BadBytes(f"a length of {length}")
        return position + size + max(length, 0)

    return step


def read_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """Return an unsigned varint and the following position."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise BadBytes("a varint of more than 5 bytes")


def pack_varint(value: int) -> bytes:
    packed = bytearray()
    while value >= 0x80:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


# Arrays:
#   flexible   | count + 1, varint | items ... |      0: null
#   before     | count, 4          | items ... |     -1: null


def _array_part(item: FieldSchema, *, flexible: bool) -> _Part:
    if item.struct is not None:
        walker = walker_of(item.struct)
        one: Step = walker.walk_over
        item_bytes, is_fixed = walker.bytes_min, walker.is_fixed
    else:
        part = _plain_part(item, flexible=flexible)
        one = _only_step(part)
        item_bytes, is_fixed = part.bytes_min, part.make is None
    assert item_bytes > 0
    read_count = Struct(">i").unpack_from
    has_tags = flexible and item.struct is not None

    def make(skip: int) -> Step:
        def step(frame: memoryview, position: int, walk: Walk) -> int:
            position += skip
            if not flexible:
                (count,) = read_count(frame, position)
                position += 4
            elif frame[position] < 0x80:
                count = frame[position] - 1
                position += 1
            else:
                count, position = read_varint(frame, position)
                count -= 1
            if count < 0:
                if count != -1 or not item.is_nullable:
                    raise BadBytes(f"{item.name} has {count} items")
                return position
            if count * item_bytes > len(frame) - position:
                raise BadBytes(f"{item.name} has {count} items in {len(frame) - position} bytes")
            _take_items(walk, count)
            if is_fixed:
                end: int = position + count * item_bytes
                # Structs end with their tagged fields. If none has any, the items have a fixed size.
                if not has_tags or not any(frame[position + item_bytes - 1 : end : item_bytes]):
                    return end
            for _ in range(count):
                position = one(frame, position, walk)
            return position

        return step

    return _Part(bytes_min=1 if flexible else 4, make=make)


def _take_items(walk: Walk, count: int) -> None:
    walk.items_left -= count
    if walk.items_left < 0:
        raise BadBytes(f"more than {ARRAY_ITEMS_MAX} items")


def _struct_part(walker: StructWalker, *, is_nullable: bool) -> _Part:
    def make(skip: int) -> Step:
        def step(frame: memoryview, position: int, walk: Walk) -> int:
            return walker.walk_over(frame, position + skip, walk)

        def nullable_step(frame: memoryview, position: int, walk: Walk) -> int:
            position += skip
            # A byte precedes the struct: 1, or -1 for null (KIP-893).
            marker = frame[position]
            if marker == 0xFF:
                return position + 1
            if marker != 1:
                raise BadBytes(f"{marker} instead of a struct or null")
            return walker.walk_over(frame, position + 1, walk)

        return nullable_step if is_nullable else step

    return _Part(bytes_min=1 if is_nullable else walker.bytes_min, make=make)


# Tagged fields:
#   | count, varint | tag, varint | size, varint | size bytes | ...


def _tagged_part(tagged: list[FieldSchema]) -> _Part:
    known = {item.tag: _only_step(_part(item, flexible=True)) for item in tagged}

    def make(skip: int) -> Step:
        def step(frame: memoryview, position: int, walk: Walk) -> int:
            position += skip
            if frame[position] == 0:
                return position + 1
            return _over_tagged_fields(frame, position, walk, known)

        return step

    return _Part(bytes_min=1, make=make)


def _only_step(part: _Part) -> Step:
    (step,) = _steps([part])
    return step


def _over_tagged_fields(
    frame: memoryview, position: int, walk: Walk, known: Mapping[int | None, Step]
) -> int:
    start = position
    count, position = read_varint(frame, position)
    _take_items(walk, count)
    rewrites = walk.rewrites
    kept: list[bytes] = []
    is_changed = False
    for _ in range(count):
        tag, position = read_varint(frame, position)
        size, position = read_varint(frame, position)
        end = position + size
        if end > len(frame):
            raise BadBytes(f"tagged field {tag} has {size} bytes, {len(frame) - position} are left")
        if tag in known:
            walk.rewrites = []
            if known[tag](frame, position, walk) != end:
                raise BadBytes(f"tagged field {tag} does not take the {size} bytes it announces")
            is_changed = is_changed or bool(walk.rewrites)
            content = walk.without_unknown_tags(frame, position, end)
            kept.append(pack_varint(tag) + pack_varint(len(content)) + content)
        else:
            is_changed = True
        position = end
    walk.rewrites = rewrites
    if is_changed:
        rewrites.append((start, position, pack_varint(len(kept)) + b"".join(kept)))
    return position


class EntityDecoder:
    """Decodes one kio class from untrusted bytes: validated by a walk, then read by kio."""

    __slots__ = ("_entity_class", "_read", "_walk_over")

    def __init__(self, entity_class: EntityClass) -> None:
        self._entity_class = entity_class
        self._walk_over = walker_of(entity_class).walk_over
        self._read = entity_reader(entity_class)

    def decode(self, frame: memoryview, position: int) -> Entity:
        """Decode the entity that starts at the position. Later bytes are ignored.

        Raises:
            RequestMalformed: the bytes are not such an entity.
        """
        try:
            return self._decode(frame, position)
        except (IndexError, struct.error):
            problem = f"its {len(frame)} bytes end in the middle of a field"
        # The walk raises ValueError, and so does kio for booleans and times; SerialError for the rest.
        except (SerialError, ValueError) as error:
            problem = str(error)
        raise RequestMalformed(f"not a {self._entity_class.__name__}: {problem}")

    def _decode(self, frame: memoryview, position: int) -> Entity:
        walk = Walk()
        end = self._walk_over(frame, position, walk)
        if end > len(frame):
            raise IndexError(end)
        if walk.rewrites:
            entity, _ = self._read(walk.without_unknown_tags(frame, position, end), 0)
        else:
            entity, _ = self._read(frame, position)
        return entity


@cache
def decoder_of(entity_class: EntityClass) -> EntityDecoder:
    return EntityDecoder(entity_class)
