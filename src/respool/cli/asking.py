"""Asking before something is done that cannot be taken back, or takes long."""

import sys

import typer

from respool.cli import output
from respool.cli.errors import ExitCode
from respool.model.operator_errors import UsageError


def confirm(question: str, *, why: str) -> None:
    """Return when the answer is yes. `why` says why it must be asked, where there is nobody to ask.

    Raises:
        UsageError: there is no terminal to ask on.
        typer.Exit: the answer is no.
    """
    if not can_ask():
        raise UsageError(
            f"{why}, and there is no terminal to ask on", hint="add --yes when you are sure"
        )
    if not typer.confirm(question, err=True):
        output.note("nothing was changed")
        raise typer.Exit(ExitCode.FAILED)


def can_ask() -> bool:
    return sys.stdin.isatty()
