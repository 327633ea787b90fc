"""Questions before an operation that cannot be undone."""

import sys
from collections.abc import Callable

import typer

from respool.cli import output
from respool.cli.errors import ExitCode
from respool.model.operator_errors import UsageError


def confirm(
    question: str,
    *,
    why: str,
    hint: str = "add --yes when you are sure",
    explain: Callable[[], None] = lambda: None,
) -> None:
    """Return when the answer is yes. `why` says why the question is needed, for the error without a terminal.

    `explain` prints what the question is about; it is called on a terminal only.

    Raises:
        UsageError: there is no terminal to ask on.
        typer.Exit: the answer is no.
    """
    if not can_ask():
        raise UsageError(f"{why}, and there is no terminal to ask on", hint=hint)
    explain()
    if not typer.confirm(question, err=True):
        output.note("nothing was changed")
        raise typer.Exit(ExitCode.FAILED)


def can_ask() -> bool:
    return sys.stdin.isatty()
