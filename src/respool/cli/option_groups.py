"""Options that several commands share as a group: a decorator adds them to a command, which gets one value instead."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable


@runtime_checkable
class Closeable(Protocol):
    def close(self) -> None: ...


Command = TypeVar("Command", bound=Callable[..., Any])


def option_group(
    parameter: str, build: Callable[..., Any], **annotations: Any
) -> Callable[[Command], Command]:
    """A decorator that replaces this parameter of a command by the parameters of `build`.

    When the command is called, `build` gets these options, and the command gets what `build` returns; if that has a
    `close`, it is called when the command ends. `annotations` replace those of some parameters.
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
