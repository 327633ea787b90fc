"""`respool completion bash|zsh|fish`: print the script that completes commands and options in a shell."""

import os
from enum import StrEnum
from typing import Annotated

import typer

from respool.cli import output

# Where typer looks for a shell that asks for completions.
VARIABLE = "_RESPOOL_COMPLETE"
EPILOG = (
    "bash reads ~/.local/share/bash-completion/completions/respool, zsh a file named _respool in a folder of its "
    "fpath, fish ~/.config/fish/completions/respool.fish.\n\n"
    "Examples:\n"
    "  respool completion bash\n"
    "  respool completion zsh"
)


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a shell's completion script, for a file that the shell reads at its start."""
    # typer documents its completion by options of the program; what prints the script is there, if not exported.
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    output.print_line(
        get_completion_script(prog_name="respool", complete_var=VARIABLE, shell=shell.value)
    )


def prepare() -> None:
    """Let typer answer a shell that asks for completions; costs nothing if none does."""
    if VARIABLE in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
