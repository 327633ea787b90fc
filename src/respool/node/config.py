"""Reads settings from a Kafka broker's server.properties (`kafka_properties.py`), then from a TOML file, then from
`RESPOOL_<NAME>` in the environment, then from the command line.

```toml
data = "/var/lib/respool"
frame_bytes_max = "64MiB"            # bytes take k, m, g, t or KiB, MiB, GiB, TiB
connection_idle_ms = "10m"           # times take ms, s, m, h, d, w, also together: "1h30m"

[listener.external]                  # a listener beside that of `listen`
listen = "0.0.0.0:9094"
protocol = "SASL_SSL"

[topic]                              # defaults for topics, under Kafka's names
"retention.ms" = "7d"
segment.bytes = 1073741824           # TOML makes nested tables of this; it means the same
```
A later source takes precedence over an earlier one, setting by setting. Every error names the source.
"""

import dataclasses
import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from respool.model.coordinator_settings import TOPIC_DOC
from respool.model.errors import InvalidConfig, SettingsError
from respool.model.kafka_settings.inert_topic_settings import REFUSED
from respool.model.security.listener_settings import LISTENER_KEYS
from respool.model.security.principal import CLIENT_LISTENER
from respool.model.setting_fields import ALIASES, OLD_NAMES, TOPIC_DEFAULTS_IN_UNITS
from respool.model.settings import SETTINGS, Settings, is_secret
from respool.model.topic_config import CONFIG_RULES, TopicConfig
from respool.model.topic_defaults import in_topic_unit
from respool.node.kafka_properties import read_kafka_properties

PREFIX = "RESPOOL_"
# Variables with our prefix that are not broker settings: the command line's, and the tests'.
OTHER_VARIABLES = frozenset({"RESPOOL_BROKER", "RESPOOL_CLIENT_CONFIG", "RESPOOL_FUZZ"})
# NAME=value as Kubernetes sets it in every container for a service named `respool` or `respool-<more>`.
_OF_KUBERNETES = re.compile(
    PREFIX
    + r"""(?:\w+_)?(?:
        SERVICE_HOST=[\da-fA-F.:]+
      | SERVICE_PORT(?:_\w+)?=\d+
      | PORT(?:_\d+_(?:TCP|UDP|SCTP))?=(?:tcp|udp|sctp)://\S+
      | PORT_\d+_(?:TCP|UDP|SCTP)_PROTO=(?:tcp|udp|sctp)
      | PORT_\d+_(?:TCP|UDP|SCTP)_PORT=\d+
      | PORT_\d+_(?:TCP|UDP|SCTP)_ADDR=[\da-fA-F.:]+
    )""",
    re.VERBOSE,
)

_VARIABLES = {
    **{PREFIX + name.upper(): name for name in [*SETTINGS, *OLD_NAMES]},
    **{f"{PREFIX}TOPIC_{name.upper().replace('.', '_')}": f"topic.{name}" for name in CONFIG_RULES},
}

_LISTENER = "listener."
_LISTENER_VARIABLE = re.compile(PREFIX + r"LISTENER_([A-Z0-9]+)_(\w+)")
# Addresses that have a protocol in front in Kafka's settings.
_ADDRESSES_OF_KAFKA = ("listeners", "advertised.listeners")
_TRUE, _FALSE = {"true", "1", "yes"}, {"false", "0", "no"}
_TIME_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 24 * 3_600_000,
    "w": 7 * 24 * 3_600_000,
}
_TIMES = re.compile(r"(?:\d+\s*(?:ms|s|m|h|d|w)\s*)+")
_TIME = re.compile(r"(\d+)\s*(ms|s|m|h|d|w)")
_SIZE = re.compile(r"(\d+)\s*(?:([kmgt])(?:ib)?|b)")
_FACTORS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def load_settings(
    *,
    file: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
    flags: Mapping[str, object],
    flags_from: str = "command line",
    kafka_file: str | os.PathLike[str] | None = None,
) -> Settings:
    """Read all sources and return the resulting settings. `kafka_file` is a Kafka broker's server.properties.

    A flag is named like a setting, or `topic.<Kafka's name>`; None means that it was not given. `flags_from` names the
    source of the flags in messages. Files and flags may also use Kafka's names of broker settings, and every source may
    use a setting's old name: see `ALIASES`.

    Raises:
        SettingsError: a name in the file or a flag is unknown, a value is invalid, or values contradict each other.
    """
    values: dict[str, Any] = {}
    topic: dict[str, str] = {}
    listeners: dict[str, dict[str, object]] = {}
    sources: dict[str, str] = {}
    renamed: list[str] = []
    places = [
        _without_aliases(place, renamed)
        for place in (_from_file(file), _from_environ(environ), _from_flags(flags, flags_from))
    ]
    kafka = None
    if kafka_file is not None:
        is_clustered = any(place.get("etcd", ("", ""))[0] for place in places)
        kafka = read_kafka_properties(
            os.fspath(kafka_file), is_clustered=is_clustered, parse=_parsed
        )
        places = [{name: (value, source) for name, value, source in kafka.settings}, *places]
    for place in places:
        for name, (value, source) in place.items():
            parsed = _parsed(name, value, source)
            if name.startswith("topic."):
                topic[name.removeprefix("topic.")] = str(parsed)
            elif name.startswith(_LISTENER):
                _, listener, key = name.split(".")
                listeners.setdefault(listener, {})[key] = parsed
            else:
                values[name] = parsed
            sources[name] = source
    try:
        settings = Settings.from_flat(**values, topic=topic, listener=listeners)
    except SettingsError as error:
        contradiction = _with_sources(error, sources)
        if kafka is None or not kafka.problems:
            raise contradiction from None
        kafka.problems.append(str(contradiction))
    if kafka is not None:
        kafka.check()
    return dataclasses.replace(
        settings,
        renamed=tuple(renamed),
        accepted=() if kafka is None else kafka.notes,
        given=frozenset(sources),
    )


def _parsed(name: str, value: object, source: str) -> object:
    """
    Raises:
        SettingsError: there is no such setting, or the value is invalid.
    """
    if name.startswith("topic."):
        return _topic_value(name, value, source)
    if name.startswith(_LISTENER):
        return _listener_value(name, value, source)
    if name in SETTINGS:
        return _value(name, value, source)
    raise SettingsError(f"{source}: there is no such setting{_closest(name)}")


def _with_sources(error: SettingsError, sources: Mapping[str, str]) -> SettingsError:
    """The error with the places of the settings that contradict each other; each is valid by itself."""
    words = set(re.findall(r"[\w.]*\w", str(error)))
    concerned = {
        name: source for name, source in sources.items() if name.removeprefix("topic.") in words
    }
    if len(concerned) == 1 and str(error).startswith(f"{next(iter(concerned))} = "):
        # The error begins with the name, which need not be repeated.
        [(name, source)] = concerned.items()
        concerned = {name: source.removesuffix(f": {name}")}
    return SettingsError(f"{'; '.join(concerned.values())}: {error}")


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A warning for each variable with our prefix that is not a setting: misspelt, or set by another program.

    Not an error, because in a container others set variables too. Those of Kubernetes services cause no warning.
    """
    return [
        f"environment variable {variable} is ignored: there is no such setting{_closest(variable, _VARIABLES)}"
        for variable, value in sorted(environ.items())
        if variable.startswith(PREFIX)
        and variable not in _VARIABLES
        and not _is_of_listener(variable)
        and variable not in OTHER_VARIABLES
        and not _OF_KUBERNETES.fullmatch(f"{variable}={value}")
    ]


def write_example(settings: Settings) -> str:
    """All settings but secrets as a TOML file that `load_settings` can read; settings at their default are comments."""
    lines = [
        "# Respool's settings. Commented-out settings have their defaults.",
        f"# Each may also be given as {PREFIX}<NAME> in the environment, or on the command line.",
    ]
    values = settings.flat()
    for item in SETTINGS.values():
        # A printed secret ends up in a log, a ticket or a chat.
        value = item.default if item.is_secret else values[item.name]
        lines += _entry(item.name, value, item.default, doc=item.doc, given=value != item.default)
    for name, table in settings.listener_tables.items():
        lines += ["", f"[listener.{name}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in table.items()]
    lines += ["", f"# {TOPIC_DOC}", "[topic]"]
    defaults = TopicConfig().as_text
    for name, rule in CONFIG_RULES.items():
        default = defaults[name]
        value = settings.topics.overrides.get(name, default)
        lines += _entry(
            json.dumps(name), value, default, doc=rule.doc, given=name in settings.topics.overrides
        )
    return "\n".join(lines) + "\n"


# -- the three places ------------------------------------------------------------------------------------------------

Found = tuple[str, object, str]


def _from_file(file: str | os.PathLike[str] | None) -> Iterator[Found]:
    """Every setting in the file: its name, its value, and its place in the file."""
    if file is None:
        return
    path = os.fspath(file)
    try:
        with open(path, "rb") as opened:
            content = tomllib.load(opened)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        # respool.flush and respool.flush.interval.ms cannot both be nested tables.
        hint = "; put quotes around names with dots" if "overwrite" in str(error) else ""
        raise SettingsError(f"{path}: {error}{hint}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not UTF-8 text") from error
    topic = content.pop("topic", {})
    if not isinstance(topic, dict):
        raise SettingsError(f"{path}: topic: is a table of settings, not {topic!r}")
    # Kafka's names have dots, from which TOML makes tables.
    for name, value in _flatten(content):
        source = f"{path}: {name}"
        if isinstance(value, Mapping):
            raise SettingsError(
                f"{source}: the table is empty, and there is no such setting{_closest(name)}"
            )
        yield name, value, source
    seen: set[str] = set()
    for name, value in _flatten(topic):
        source = f"{path}: [topic] {name}"
        if isinstance(value, Mapping):
            # An empty table says nothing about a topic.
            continue
        if name in seen:
            raise SettingsError(f"{source}: is given twice, with and without quotes")
        seen.add(name)
        yield f"topic.{name}", value, source


def _without_aliases(place: Iterable[Found], renamed: list[str]) -> dict[str, tuple[object, str]]:
    """The settings of one source, by their current names. Old names are appended to `renamed`.

    Raises:
        SettingsError: a setting is given under two names.
    """
    found: dict[str, tuple[object, str]] = {}
    for alias, given, source in place:
        value = given
        name = ALIASES.get(alias, alias)
        if name in found:
            raise SettingsError(f"{source}: is the same setting as {found[name][1]}")
        if alias in OLD_NAMES:
            renamed.append(
                f"{source}: is called {name} now; the old name goes with the next release"
            )
        if alias in _ADDRESSES_OF_KAFKA and isinstance(value, str):
            value = value.removeprefix("PLAINTEXT://")
        elif alias in TOPIC_DEFAULTS_IN_UNITS and isinstance(value, int | str):
            value = in_topic_unit(alias, str(value))
        found[name] = value, source
    return found


def _from_environ(environ: Mapping[str, str]) -> Iterator[Found]:
    for variable in sorted(environ.keys() & _VARIABLES.keys()):
        yield _VARIABLES[variable], environ[variable], f"environment variable {variable}"
    for variable in sorted(filter(_is_of_listener, environ)):
        found = _LISTENER_VARIABLE.fullmatch(variable)
        assert found is not None
        name = f"{_LISTENER}{found[1].lower()}.{found[2].lower()}"
        yield name, environ[variable], f"environment variable {variable}"


def _is_of_listener(variable: str) -> bool:
    """RESPOOL_LISTENER_EXTERNAL_LISTEN is `listen` of the listener `external`."""
    found = _LISTENER_VARIABLE.fullmatch(variable)
    return found is not None and found[2].lower() in LISTENER_KEYS


def _from_flags(flags: Mapping[str, object], place: str) -> Iterator[Found]:
    for name, value in flags.items():
        if value is None:
            continue
        source = f"{place}: {name}"
        if name == "topic" and isinstance(value, Mapping):
            for inner, text in _flatten(value):
                if not isinstance(text, Mapping):
                    yield f"topic.{inner}", text, f"{source}.{inner}"
        elif name == "listener" and isinstance(value, Mapping):
            for inner, text in _flatten(value):
                yield f"{_LISTENER}{inner}", text, f"{source}.{inner}"
        else:
            yield name, value, source


def _flatten(table: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """`{"retention": {"ms": 1}}` -> `("retention.ms", 1)`. An empty table is a value."""
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{above}{name}.")
        else:
            yield above + name, value


def _closest(name: str, known: Mapping[str, object] | None = None) -> str:
    names = [
        each
        for each in known or [*SETTINGS, *(f"topic.{one}" for one in CONFIG_RULES)]
        if each.removeprefix(PREFIX).lower() not in OLD_NAMES
    ]
    found = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {found[0]}?" if found else ""


# -- values ----------------------------------------------------------------------------------------------------------


def _value(name: str, value: object, source: str) -> object:
    kind = SETTINGS[name].kind
    if kind is str and isinstance(value, str):
        return value
    if kind is bool:
        text = str(value).strip().lower()
        if text in _TRUE | _FALSE:
            return text in _TRUE
        raise SettingsError(f"{source}: {value!r} is neither true nor false")
    if kind is int and not isinstance(value, bool):
        if isinstance(value, int):
            return value
        if isinstance(value, str):
            return _number(name, value, source)
    what = "text" if kind is str else "a whole number"
    shown = "the secret" if is_secret(name) else repr(value)
    raise SettingsError(f"{source}: {shown} is not {what}")


def _listener_value(name: str, value: object, source: str) -> object:
    """A setting of one listener: `listener.<name>.<key>`."""
    parts = name.split(".")
    if len(parts) != 3 or parts[2] not in LISTENER_KEYS:
        known = ", ".join(LISTENER_KEYS)
        raise SettingsError(f"{source}: a listener has only these settings: {known}")
    if parts[1] == CLIENT_LISTENER:
        raise SettingsError(
            f"{source}: the listener {CLIENT_LISTENER} is that of `listen`: give {parts[2]} without a table"
        )
    if LISTENER_KEYS[parts[2]] is int:
        if isinstance(value, str) and _is_whole_number(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SettingsError(f"{source}: {value!r} is not a whole number from 0 on")
    elif not isinstance(value, str):
        raise SettingsError(f"{source}: {value!r} is not text")
    return value


def _topic_value(name: str, value: object, source: str) -> str:
    name = name.removeprefix("topic.")
    rule = CONFIG_RULES.get(name)
    if name in REFUSED:
        raise SettingsError(f"{source}: is refused: {REFUSED[name]}")
    if rule is None:
        raise SettingsError(f"{source}: there is no such topic setting{_closest(f'topic.{name}')}")
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ",".join(value)
    if isinstance(value, float) or not isinstance(value, str | int):
        raise SettingsError(f"{source}: {value!r} is neither text nor a whole number")
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if _unit_of(name) and not _is_whole_number(text):
        text = str(_number(name, text, source))
    try:
        rule.parse(text)
    except InvalidConfig as error:
        raise SettingsError(f"{source}: {error}") from None
    return text


def _number(name: str, text: str, source: str) -> int:
    """Parse a whole number, or one with a unit if the setting's name says which kind of unit."""
    if _is_whole_number(text):
        return int(text)
    low, unit = text.strip().lower(), _unit_of(name)
    if unit == "ms" and _TIMES.fullmatch(low):
        return sum(int(count) * _TIME_UNITS_MS[each] for count, each in _TIME.findall(low))
    if unit == "bytes" and (size := _SIZE.fullmatch(low)):
        return int(size[1]) * _FACTORS[size[2] or ""]
    hint = {
        "ms": ", nor a time such as 500ms, 10s or 7d",
        "bytes": ", nor a size such as 512KiB, 100MiB or 1GiB",
        "": "",
    }[unit]
    raise SettingsError(f"{source}: {text!r} is not a whole number{hint}")


def _unit_of(name: str) -> str:
    words = re.split(r"[._]", name)
    if words[-1] == "ms":
        return "ms"
    return "bytes" if "bytes" in words else ""


def _is_whole_number(text: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+\s*", text, re.ASCII) is not None


# -- writing ---------------------------------------------------------------------------------------------------------


def _entry(name: str, value: object, default: object, *, doc: str, given: bool) -> list[str]:
    if given:
        return ["", f"# {doc} Default: {_toml(default)}", f"{name} = {_toml(value)}"]
    return ["", f"# {doc}", f"# {name} = {_toml(value)}"]


def _toml(value: object) -> str:
    # JSON's strings, whole numbers and booleans are valid TOML, too, once DEL is escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
