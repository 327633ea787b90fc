"""`respool`: assembles the command line; the only place that turns a command's end into an exit code.

Start-up must stay fast: this file and its imports load typer and little else. Commands import brokers, clients and
log readers when they run.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from respool import __version__
from respool.cli import (
    config_command,
    group,
    log,
    mirror,
    output,
    serve,
    topic,
    transaction,
)
from respool.cli.access import acl_commands as acl
from respool.cli.access import quota_commands as quota
from respool.cli.archives import archive_commands as archive
from respool.cli.cluster import commands as cluster
from respool.cli.delays import delay_commands as delay
from respool.cli.exit_codes import EXIT_CODE_MEANING, ExitCode, exit_code_of
from respool.cli.messages import consume, produce
from respool.cli.pipelines import pipeline, rides
from respool.cli.queues import queue_commands as queue
from respool.cli.replays import dlq, replay
from respool.cli.shell import completion, man_pages
from respool.cli.status import broker_status
from respool.cli.tables import table_commands as table
from respool.cli.users import tls_commands, token_commands, user_commands
from respool.cli.views import view_commands as view
from respool.model.operator_errors import OperatorError


class Group(TyperGroup):
    """All commands, with help options that do not appear to take a value.

    typer 0.29 shows the type of every option that has no metavar, here `<bool>`. It creates the help option itself, so
    the metavar can only be set here.
    """

    def get_help_option(self, ctx: Any) -> Any:
        return _without_value(super().get_help_option(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            # A command creates its help option once and caches it; the option names are the same for the whole command
            # line.
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
app.command("status", epilog=broker_status.EPILOG)(broker_status.status)
app.add_typer(topic.app, name="topic")
app.add_typer(view.app, name="view")
app.add_typer(delay.app, name="delay")
app.add_typer(archive.app, name="archive")
app.add_typer(table.app, name="table")
app.command("produce", epilog=produce.EPILOG)(produce.produce)
app.command("consume", epilog=consume.EPILOG)(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(queue.app, name="queue")
app.add_typer(config_command.app, name="config")
app.add_typer(acl.app, name="acl")
app.add_typer(quota.app, name="quota")
app.add_typer(transaction.app, name="transaction")
app.add_typer(user_commands.app, name="user")
app.add_typer(token_commands.app, name="token")
app.add_typer(tls_commands.app, name="tls")
app.add_typer(replay.app, name="replay")
app.add_typer(dlq.app, name="dlq")
app.add_typer(log.app, name="log")
app.add_typer(cluster.app, name="cluster")
app.add_typer(mirror.app, name="mirror")
app.add_typer(rides.app, name="rides")
app.add_typer(pipeline.app, name="pipeline")
app.command("completion", epilog=completion.EPILOG)(completion.completion)
app.command("man", epilog=man_pages.EPILOG)(man_pages.man)


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
        # The reader of our output closed the pipe early (head, less): not an error.
        output.drop_what_is_left()
        return ExitCode.OK
    except OSError as error:
        # An unreadable file or a full disk: the operating system's message says it best.
        output.print_error(f"{error.filename or 'failed'}: {error.strerror or error}")
        return ExitCode.FAILED


def _run(arguments: list[str] | None) -> int:
    completion.prepare()
    try:
        app(args=arguments, prog_name="respool")
    except SystemExit as end:
        # typer has already printed the usage error, and set the exit code.
        if isinstance(end.__context__, BrokenPipeError):
            # typer also exits with 1 for a closed pipe; let `main` decide about that.
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
