"""The shape that docs/json.md promises for every `--json`, checked on each document the tests in this folder print."""

import re
from collections.abc import Mapping

_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
# What users named: settings with Kafka's dots. And what they sent: pairs, because a header may occur twice.
_SETTINGS = ("settings", "counts", "figures")
# What programs compare.
_STATES = ("state", "reason", "why", "type", "kind", "membership", "need", "subject", "outcome")
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")
_FROM_USERS = ("headers", "key", "value")


def check_shape(document: object) -> None:
    assert isinstance(document, Mapping), f"one object, not {document!r}"
    _check_object(document, "")


def _check_object(document: Mapping[object, object], where: str) -> None:
    for name, value in document.items():
        assert isinstance(name, str)
        assert _FIELD_NAME.match(name), f"{where}.{name} is data, not the name of a field"
        place = f"{where}.{name}"
        if name in _FROM_USERS or name in _SETTINGS:
            continue
        if isinstance(value, Mapping):
            _check_object(value, place)
        elif isinstance(value, list | tuple):
            _check_list(value, place)
        elif name.endswith("_count"):
            assert value is None or isinstance(value, int), f"{place} is no number"
        elif name in _STATES:
            assert value is None or _WORD.match(str(value)), f"{place} is prose: {value!r}"


def _check_list(elements: list[object] | tuple[object, ...], where: str) -> None:
    objects = [one for one in elements if isinstance(one, Mapping)]
    if not objects:
        assert not any(isinstance(one, list | tuple) for one in elements), (
            f"{where} has lists in it"
        )
        return
    assert len(objects) == len(elements), f"{where} has objects and others in it"
    assert len({frozenset(one) for one in objects}) == 1, f"{where} has objects of several kinds"
    for one in objects:
        _check_object(one, where)
