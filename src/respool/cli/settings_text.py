"""The broker's settings as a TOML file with every setting's meaning beside it: what `--config` reads back."""

import dataclasses
import json
from collections.abc import Mapping

from respool.model.settings import Settings


def as_toml(settings: Settings) -> str:
    lines: list[str] = []
    tables: list[str] = []
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        doc = f"# {item.metadata['doc']}"
        if isinstance(value, Mapping):
            tables += ["", doc, f"[{item.name}]"]
            tables += [f"{_key(name)} = {_value(each)}" for name, each in value.items()]
        else:
            lines += [doc, f"{item.name} = {_value(value)}"]
    # Tables last: in TOML, a key after a table's heading belongs to that table.
    return "\n".join(lines + tables)


def _key(name: str) -> str:
    return json.dumps(name)


def _value(value: object) -> str:
    # JSON's strings, numbers and booleans are TOML's too, but for two things: TOML wants DEL escaped, and knows no
    # surrogate pairs, which JSON would escape an emoji to.
    assert isinstance(value, str | int | bool)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
