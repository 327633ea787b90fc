"""Every command of `respool`, as the parser knows it."""

from collections.abc import Iterator
from typing import Any

import typer

from respool.cli.main import app


def all_commands() -> dict[tuple[str, ...], Any]:
    """By the words that name it: `("topic", "create")`."""
    return dict(_walk(typer.main.get_command(app), ()))


def has_option(command: Any, name: str) -> bool:
    return any(name in one.opts for one in command.params)


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, one in command.commands.items():
        yield from _walk(one, (*path, name))
