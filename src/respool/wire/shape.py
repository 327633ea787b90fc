"""Plain dicts -> kio entities of the requested version, so that handlers need not know versions.

Writing. A handler uses one vocabulary, the newest: kio's field names (Kafka's names in snake case; kio drops `_ms`
where it uses a duration: `throttle_time`), nested dicts for structs and any sequence for arrays.

- A field that the version does not have is left out.
- A missing field gets the schema's default; without one it is our error.
- A name that no supported version has is misspelt, and an error too.
- Durations (`throttle_time`) and times (`log_append_time`) may be integers, in milliseconds; -1 is the null time. Error
  codes are integers. The null uuid is None or the zero uuid.

Reading. A request's body is used as kio made it. A field that only some versions have is read with a default:
`getattr(body, "isolation_level", 0)`. Durations are timedeltas (`milliseconds(body.timeout)`), the zero uuid is None,
arrays are tuples, records are bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NoReturn

from kio.schema.errors import ErrorCode

from respool.wire.api_table import API_TABLE
from respool.wire.schema import (
    Entity,
    EntityClass,
    FieldSchema,
    load_request_class,
    response_class,
    schema_of,
)

Convert = Callable[[Any], Any]


def shape(entity_class: EntityClass, fields: Mapping[str, Any]) -> Entity:
    """Build the entity of one version's class from fields in the newest vocabulary.

    Raises:
        TypeError: a field is missing, misspelt, or null where it must not be; the message names it.
    """
    return _shaper_of(entity_class)(fields)


def milliseconds(duration: timedelta) -> int:
    """A duration of a request's body as the integer on the wire."""
    return duration // _MILLISECOND


class _Shaper:
    """Builds entities of one class."""

    __slots__ = ("_entity_class", "_names", "_plan")

    def __init__(self, entity_class: EntityClass) -> None:
        schema = schema_of(entity_class)
        self._entity_class = entity_class
        self._names = frozenset(item.name for item in schema)
        self._plan = tuple((item.name, _convert(item), item.default) for item in schema)

    def __call__(self, fields: Mapping[str, Any]) -> Entity:
        values = {}
        name = ""
        try:
            for name, convert, default in self._plan:
                if name in fields:
                    value = fields[name]
                    values[name] = value if convert is None else convert(value)
                elif default is MISSING:
                    _refuse_missing()
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"{_title(self._entity_class)}, {name}: {error}") from error
        if len(values) < len(fields):
            self._check_names(fields)
        return self._entity_class(**values)

    def _check_names(self, fields: Mapping[str, Any]) -> None:
        others = fields.keys() - self._names
        misspelt = others - _vocabulary(self._entity_class.__api_key__)[self._entity_class.__name__]
        if misspelt:
            raise TypeError(
                f"{_title(self._entity_class)} has no {', '.join(sorted(misspelt))}, nor has any other version"
            )


@cache
def _shaper_of(entity_class: EntityClass) -> _Shaper:
    return _Shaper(entity_class)


@cache
def _vocabulary(key: int) -> Mapping[str, set[str]]:
    """The field names of each struct in an API's requests and replies, over all supported versions."""
    spec = API_TABLE[key]
    names: dict[str, set[str]] = {}

    def add(entity_class: EntityClass) -> None:
        known = names.setdefault(entity_class.__name__, set())
        for item in schema_of(entity_class):
            known.add(item.name)
            if item.struct is not None:
                add(item.struct)

    for version in range(spec.version_min, spec.version_max + 1):
        add(load_request_class(key, version))
        add(response_class(key, version))
    return names


def _refuse_missing() -> NoReturn:
    raise TypeError("it is missing and has no default")


def _title(entity_class: EntityClass) -> str:
    return f"{entity_class.__name__} v{entity_class.__version__}"


_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime.fromtimestamp(0, tz=UTC)
_ERROR_CODES = {int(code): code for code in ErrorCode}


def _convert(item: FieldSchema) -> Convert | None:
    """The conversion from the handler's value to kio's; None if they are the same."""
    if item.struct is not None:
        one: Convert | None = _shaper_of(item.struct)
    elif item.kind == "datetime_i64":
        one = _nullable_time if item.is_nullable else _time
    else:
        one = {
            "error_code": _error_code,
            "timedelta_i32": _duration,
            "timedelta_i64": _duration,
        }.get(item.kind)
    if item.is_array:
        one = _tuple_of(one)
    if one is not None and item.is_nullable:
        one = _or_none(one)
    return one


def _tuple_of(one: Convert | None) -> Convert:
    return tuple if one is None else lambda items: tuple(map(one, items))


def _or_none(one: Convert) -> Convert:
    return lambda value: None if value is None else one(value)


def _error_code(value: int) -> ErrorCode:
    try:
        return _ERROR_CODES[value]
    except KeyError:
        raise ValueError(f"{value} is not an error code of Kafka") from None


def _duration(value: int | timedelta) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(milliseconds=value)


def _time(value: int | datetime) -> datetime:
    return value if isinstance(value, datetime) else _EPOCH + timedelta(milliseconds=value)


def _nullable_time(value: int | datetime) -> datetime | None:
    return None if value == -1 else _time(value)
