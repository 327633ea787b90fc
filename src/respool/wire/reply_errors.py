"""The error codes of a reply, for metrics: collected when it is encoded, carried by its frame.

A reply without errors is plain bytes. One with errors ends with a `FrameWithErrors`: the same bytes, and the codes. So
errors can be counted without parsing replies, and replies without errors cost nothing.
"""

from collections.abc import Callable, Iterable
from functools import cache

from kio.schema.errors import ErrorCode

from respool.wire.schema import Entity, EntityClass, schema_of


class FrameWithErrors(bytes):
    """The last buffer of a reply with errors."""

    # All codes of the reply: its own, of topics, of partitions. None of them is 0.
    error_codes: tuple[int, ...]


def with_errors(frame: bytes, codes: Iterable[int]) -> bytes:
    """The frame, with the codes other than 0 if there are any."""
    told = tuple(code for code in codes if code)
    if not told:
        return frame
    # This copies a buffer without records.
    marked = FrameWithErrors(frame)
    marked.error_codes = told
    return marked


def error_name(code: int) -> str:
    """Kafka's name for the code: NOT_LEADER_OR_FOLLOWER."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return str(code)


def error_code_named(name: str) -> int | None:
    """The code of this Kafka error name, in any case; None if there is none."""
    found = next((one for one in ErrorCode if one.name.upper() == name.upper()), None)
    return None if found is None else int(found)


Find = Callable[[Entity, list[int]], None]


def codes_of(entity: Entity) -> list[int]:
    """All error codes of a reply's entity other than 0."""
    codes: list[int] = []
    entity_class: EntityClass = type(entity)
    find = _finder_of(entity_class)
    if find is not None:
        find(entity, codes)
    return codes


@cache
def _finder_of(entity_class: EntityClass) -> Find | None:
    """The function that collects codes from an entity of this class; None if the class has no codes."""
    names = [item.name for item in schema_of(entity_class) if item.kind == "error_code"]
    inner = [
        (item.name, item.is_array, find)
        for item in schema_of(entity_class)
        if item.struct is not None and (find := _finder_of(item.struct)) is not None
    ]
    if not names and not inner:
        return None

    def look(entity: Entity, codes: list[int]) -> None:
        for name in names:
            code = getattr(entity, name)
            if code is not ErrorCode.none:
                codes.append(int(code))
        for name, is_array, find in inner:
            value = getattr(entity, name)
            if value is None:
                continue
            if not is_array:
                find(value, codes)
                continue
            for one in value:
                find(one, codes)

    return look
