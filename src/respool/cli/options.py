"""Options that several commands share, so that they look and behave the same everywhere."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Protocol,
    TypeVar,
    runtime_checkable,
)

import typer

from respool.client.kafka.bootstrap import ENVIRONMENT
from respool.model.operator_errors import NotFound, UsageError
from respool.model.times import TimeNotUnderstood, parse_duration_ms, parse_time

if TYPE_CHECKING:
    from respool.model.where import Where


class Isolation(StrEnum):
    """Kafka's `isolation.level` of consumers."""

    # No records of aborted transactions, and none beyond the first open one.
    READ_COMMITTED = "read_committed"
    # All records in the log.
    READ_UNCOMMITTED = "read_uncommitted"

    @property
    def level(self) -> Literal["read_committed", "read_uncommitted"]:
        if self is Isolation.READ_COMMITTED:
            return "read_committed"
        return "read_uncommitted"


def flag(*names: str, text: str) -> Any:
    """An option that takes no value. Without an empty metavar, typer's help would promise one."""
    return typer.Option(*names, metavar="", help=text)


Broker = Annotated[
    str,
    typer.Option(
        "--broker",
        "-b",
        envvar=ENVIRONMENT,
        metavar="HOST:PORT",
        help="The broker to talk to; several, with commas, for a cluster.",
    ),
]
Json = Annotated[bool, flag("--json", text="Print JSON, for programs.")]
Yes = Annotated[bool, flag("--yes", "-y", text="Do not ask.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A topic setting, such as retention.ms=7d; may be given several times.",
    ),
]

# KiB, K and so on are powers of 1024; kB, MB and so on are powers of 1000.
_SIZE = re.compile(r"(\d+)\s*(?:b|([kmgt])(ib|b)?)", re.IGNORECASE)
# Longer numbers would be too large for any setting.
BYTE_COUNT_LENGTH_MAX = 18
# The largest value of a setting; duplicated here, because help output must import nothing else.
BYTE_COUNT_MAX = 2**63 - 1
_PARTITIONS = re.compile(r"\d+(,\d+)*")
_SIZE_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def parse_assignments(pairs: Sequence[str] | None, *, option: str = "--set") -> dict[str, str]:
    """`["a=1", "b=x=y"]` -> `{"a": "1", "b": "x=y"}`.

    Raises:
        UsageError: a pair has no '=' or no name, or a name is repeated.
    """
    found: dict[str, str] = {}
    for name, value in parse_pairs(pairs, option=option):
        if name in found:
            raise UsageError(f"{option} {name} is given twice: {found[name]!r} and {value!r}")
        found[name] = value
    return found


def broker_settings(
    pairs: Sequence[str] | None, given: Mapping[str, object], *, files: Iterable[Path | None]
) -> dict[str, object]:
    """A broker's settings given on the command line: by `--set`, and by flags; a flag that is None was not given.

    Raises:
        UsageError: a setting is given by both.
        NotFound: there is no such settings file.
    """
    found: dict[str, object] = dict(parse_assignments(pairs))
    for name, value in given.items():
        if value is not None:
            if name in found:
                raise UsageError(f"{name} is given by a flag and by --set")
            found[name] = value
    for file in files:
        if file is not None and not file.is_file():
            raise NotFound(f"there is no settings file {str(file)!r}")
    return found


def parse_pairs(pairs: Sequence[str] | None, *, option: str) -> list[tuple[str, str]]:
    """Like `parse_assignments`, but keeps repeated names, in order."""
    found: list[tuple[str, str]] = []
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {pair!r} is not NAME=VALUE")
        found.append((name.strip(), value))
    return found


def parse_names(text: str, *, option: str) -> list[str]:
    """`"a, b"` -> `["a", "b"]`.

    Raises:
        UsageError: a name is empty.
    """
    names = [one.strip() for one in text.split(",")]
    if not all(names):
        raise UsageError(f"{option} {text!r}: give names, separated by commas")
    return names


def time_ms(text: str, *, option: str, now: datetime | None = None) -> int:
    """Parse an option whose value is a point in time; `now` None means the current time.

    Raises:
        UsageError: the text is not a valid time.
    """
    try:
        return parse_time(text, now=now or datetime.now(UTC))
    except TimeNotUnderstood as error:
        raise UsageError(f"{option}: {error}") from None


def duration_ms(text: str, *, option: str, at_least: str = "1ms") -> int:
    """Parse an option whose value is a duration.

    Raises:
        UsageError: the text is not a valid duration, or is too short.
    """
    try:
        found = parse_duration_ms(text)
    except TimeNotUnderstood as error:
        raise UsageError(f"{option}: {error}") from None
    if found < parse_duration_ms(at_least):
        raise UsageError(f"{option} {text}: it must be {at_least} at least")
    return found


def topics_and_partitions(texts: Iterable[str], *, option: str) -> dict[str, list[int] | None]:
    """`rides`, `fares:0,2` -> `{"rides": None, "fares": [0, 2]}`; None stands for all partitions.

    Raises:
        UsageError: the partitions are not numbers, or no topic can have this name.
    """
    from respool.model.errors import InvalidTopic
    from respool.model.ids import check_topic_name

    found: dict[str, list[int] | None] = {}
    for text in texts:
        # Topic names contain no colon.
        name, colon, numbers = text.partition(":")
        if not name or (colon and not _PARTITIONS.fullmatch(numbers)):
            raise UsageError(f"{option} {text!r} is not TOPIC or TOPIC:PARTITION,…")
        try:
            check_topic_name(name)
        except InvalidTopic as error:
            raise UsageError(f"{option}: {error}") from None
        before = found.get(name, [])
        if not colon or before is None:
            found[name] = None
        else:
            found[name] = sorted({*before, *map(int, numbers.split(","))})
    return found


def broker_number(text: str) -> int:
    """Parse an argument whose value is a broker id.

    Raises:
            typer.BadParameter: the text is not a valid broker id.
    """
    if not (text.isascii() and text.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not the number of a broker, such as 3")
    return int(text)


def topic_name(text: str) -> str:
    """Parse an argument whose value is the name of a topic. Brokers refuse other names, or know no such topic.

    Raises:
        typer.BadParameter: no topic can have this name.
    """
    from respool.model.errors import InvalidTopic
    from respool.model.ids import check_topic_name

    try:
        check_topic_name(text)
    except InvalidTopic as error:
        raise typer.BadParameter(str(error)) from None
    return text


def where(text: str) -> "Where":
    """Parse an option whose value is a condition on messages.

    Raises:
        UsageError: the text is malformed; the message names the position and what was expected there.
    """
    from respool.model.errors import InvalidConfig
    from respool.model.where import parse_where

    try:
        return parse_where(text)
    except InvalidConfig as error:
        raise UsageError(
            f"--where: {error}", hint="for example: tag = 'paid' and key starts 'ride-'"
        ) from None


def byte_count(text: str, *, option: str, or_word: str) -> int:
    """Parse an option whose value is a size: 50000000, 50MB or 50MiB. Errors also offer `or_word` as a value.

    Raises:
        UsageError: the text is not a valid size.
    """
    text = text.strip()
    size = _SIZE.fullmatch(text)
    is_number = text.isascii() and text.isdecimal()
    if len(text) > BYTE_COUNT_LENGTH_MAX or not (size or is_number):
        raise UsageError(
            f"{option} {text[:BYTE_COUNT_LENGTH_MAX]!r} is not a number of bytes",
            hint=f"such as 50MiB, 50MB, or 50000000; or {or_word}",
        )
    found = _bytes_of(size) if size else int(text)
    if found > BYTE_COUNT_MAX:
        raise UsageError(
            f"{option} {text} is more than {BYTE_COUNT_MAX} bytes", hint=f"give less, or {or_word}"
        )
    return found


def settings_in_plain_numbers(pairs: Sequence[str] | None) -> dict[str, str]:
    """Settings in the broker's format: `retention.ms=7d` and `segment.bytes=64MiB` become plain numbers."""
    return {name: _plain_number(name, text) for name, text in parse_assignments(pairs).items()}


def _plain_number(name: str, text: str) -> str:
    if name.endswith(".ms") and "," in text:
        # A list of durations, such as respool.share.retry.delays.ms.
        return ",".join(_plain_number(name, one) for one in text.split(","))
    if name.endswith(".ms") and not _is_whole_number(text):
        try:
            return str(parse_duration_ms(text))
        except TimeNotUnderstood as error:
            raise UsageError(f"--set {name}: {error}") from None
    size = _SIZE.fullmatch(text.strip())
    if name.endswith(".bytes") and size:
        return str(_bytes_of(size))
    # Other values are validated by the broker, which knows its settings and reports what is wrong.
    return text


def _bytes_of(size: re.Match[str]) -> int:
    count, prefix, end = (one or "" for one in size.groups())
    base = 1000 if end.lower() == "b" else 1024
    return int(count) * int(base ** _SIZE_POWER[prefix.lower()])


def _is_whole_number(text: str) -> bool:
    return text.strip().removeprefix("-").isdecimal()


# -- groups of options -------------------------------------------------------------------------------------------------


@runtime_checkable
class Closeable(Protocol):
    def close(self) -> None: ...


Command = TypeVar("Command", bound=Callable[..., Any])


def option_group(
    parameter: str, build: Callable[..., Any], **annotations: Any
) -> Callable[[Command], Command]:
    """A decorator that replaces this parameter of a command with the parameters of `build`.

    When the command is called, `build` gets these options, and the command gets what `build` returns; if that has a
    `close` method, it is called when the command ends. `annotations` replace those of some parameters.
    """
    group = {
        name: one.replace(annotation=annotations.get(name, one.annotation))
        for name, one in inspect.signature(build).parameters.items()
    }

    def decorate(command: Command) -> Command:
        own = [
            one for one in inspect.signature(command).parameters.values() if one.name != parameter
        ]

        @functools.wraps(command)
        def call(**options: Any) -> Any:
            value = build(**{name: options.pop(name) for name in group})
            try:
                return command(**options, **{parameter: value})
            finally:
                if isinstance(value, Closeable):
                    value.close()

        merged = [one.replace(kind=one.KEYWORD_ONLY) for one in (*own, *group.values())]
        call.__signature__ = inspect.Signature(merged)  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in merged}
        return call  # type: ignore[return-value]

    return decorate
