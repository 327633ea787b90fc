"""`respool`: the command line put together, and the one place where a command's end becomes an exit code.

Start-up must stay quick: this file and those it imports bring in typer and little else. Brokers, clients and log
readers are imported by the command that needs them, when it runs.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from respool import __version__
from respool.cli import (
    cluster,
    consume,
    group,
    log,
    mirror,
    output,
    pipeline,
    produce,
    replay,
    rides,
    serve,
    topic,
    transaction,
)
from respool.cli.exit_codes import EXIT_CODE_MEANING, ExitCode, exit_code_of
from respool.model.operator_errors import OperatorError


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


app = typer.Typer(
    name="respool",
    cls=Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A message broker that can replay history, speaking Kafka's protocol.",
    epilog="Exit codes:\n"
    + "\n".join(f"  {code.value:>3}  {meaning}" for code, meaning in EXIT_CODE_MEANING.items()),
)
app.command("serve", epilog=serve.EPILOG)(serve.serve)
app.add_typer(topic.app, name="topic")
app.command("produce", epilog=produce.EPILOG)(produce.produce)
app.command("consume", epilog=consume.EPILOG)(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(transaction.app, name="transaction")
app.add_typer(replay.app, name="replay")
app.add_typer(log.app, name="log")
app.add_typer(cluster.app, name="cluster")
app.add_typer(mirror.app, name="mirror")
app.add_typer(rides.app, name="rides")
app.add_typer(pipeline.app, name="pipeline")


def main(arguments: list[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    try:
        return _run(arguments)
    except OperatorError as error:
        output.print_error(error.message, error.hint)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough of it (head, less): nothing went wrong.
        output.drop_what_is_left()
        return ExitCode.OK
    except OSError as error:
        # A file that may not be read, a disk that is full: the system's words are the best there are.
        output.print_error(f"{error.filename or 'failed'}: {error.strerror or error}")
        return ExitCode.FAILED


def _run(arguments: list[str] | None) -> int:
    try:
        app(args=arguments, prog_name="respool")
    except SystemExit as end:
        # typer has said what was wrong with the command line, and how it ends.
        if isinstance(end.__context__, BrokenPipeError):
            # It ends with 1 for a closed pipe, too; that is for `main` to judge.
            raise end.__context__ from None
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else ExitCode.FAILED
    sys.stdout.flush()
    return ExitCode.OK


def _print_version(wanted: bool) -> None:
    if wanted:
        output.print_line(f"respool {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            is_eager=True,
            callback=_print_version,
            help="Print the version, and end.",
        ),
    ] = False,
) -> None:
    del version
