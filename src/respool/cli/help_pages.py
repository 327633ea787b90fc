"""What typer's help pages say of `--help` itself: like every flag of ours it takes no value."""

from typing import Any

from typer.core import TyperGroup


class Group(TyperGroup):
    """All commands, with help options that promise no value.

    typer 0.29 shows the type of every option without a metavar, `<bool>` here. It makes this option by itself, so that
    only here it can be given one.
    """

    def get_help_option(self, ctx: Any) -> Any:
        return _without_value(super().get_help_option(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            # A command makes its help option once, and keeps it; its names are those of the whole command line.
            for one in (command, *getattr(command, "commands", {}).values()):
                _without_value(one.get_help_option(ctx))
        return command


def _without_value(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option
