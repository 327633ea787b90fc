"""`respool serve`: collect the given flags and start the node."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.model.operator_errors import OperatorError, UsageError

if TYPE_CHECKING:
    from respool.model.settings import Settings

EPILOG = (
    "Settings come from flags, then RESPOOL_<NAME> in the environment, then the file of --config, then that of "
    "--kafka-config, then defaults. "
    "It runs until Ctrl-C or SIGTERM, and prints one line when it accepts clients.\n\n"
    "Examples:\n"
    "  respool serve\n"
    "  respool serve --data /var/lib/respool --metrics 127.0.0.1:9100\n"
    "  respool serve --secure --data /var/lib/respool\n"
    "  respool serve --config respool.toml --set num_partitions=4 --print-config\n"
    "  respool serve --kafka-config server.properties --print-config\n"
    "  respool serve --broker-id 2 --etcd 10.0.0.1:2379 --rack b --insecure"
)


def serve(
    *,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="The data folder. Default: ./respool-data")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Accept clients here; port 0 picks one. Default: 127.0.0.1:9092",
        ),
    ] = None,
    advertised: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The address advertised to clients, if it differs from --listen.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Read settings from this file.")
    ] = None,
    kafka_config: Annotated[
        Path | None,
        typer.Option(
            "--kafka-config",
            metavar="FILE.properties",
            help="Read a Kafka broker's server.properties; all other sources take precedence.",
        ),
    ] = None,
    insecure: Annotated[
        bool | None,
        options.flag(
            "--insecure",
            text="Allow listening beyond this machine although nothing authenticates clients.",
        ),
    ] = None,
    secure: Annotated[
        bool,
        options.flag(
            "--secure",
            text="Serve with TLS, logins and ACLs; what is missing is made in <data>/security.",
        ),
    ] = False,
    broker_id: Annotated[
        int | None,
        typer.Option(
            "--broker-id", min=0, metavar="N", help="The broker id in the cluster. Default: 1"
        ),
    ] = None,
    etcd: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT[,...]",
            help="Join the cluster on this etcd. Without it, the broker runs alone.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The cluster's name in etcd. Default: respool"),
    ] = None,
    rack: Annotated[
        str | None, typer.Option(metavar="NAME", help="The broker's rack or zone.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve Prometheus metrics here.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="text, or json: one object per line. Default: text"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Any setting by its name; may be repeated."
        ),
    ] = None,
    print_config: Annotated[
        bool,
        options.flag(
            "--print-config", text="Print the settings in force as a settings file, and end."
        ),
    ] = False,
) -> None:
    """Run a broker."""
    given = {
        "data": data,
        "listen": listen,
        "advertised": advertised,
        "insecure": insecure,
        "broker_id": broker_id,
        "etcd": etcd,
        "cluster": cluster,
        "rack": rack,
        "metrics_listen": metrics,
        "log_level": log_level,
        "log_format": log_format,
    }
    flags = options.broker_settings(settings, given, files=[config, kafka_config])

    from respool.model.errors import RespoolError, SettingsError
    from respool.node.config import load_settings, unknown_variables, write_example

    def load(more: dict[str, object]) -> "Settings":
        return load_settings(
            file=config, environ=os.environ, flags=flags | more, kafka_file=kafka_config
        )

    try:
        if secure:
            from respool.node.secure_start import producer_lines, secure_flags

            # Its listener is not secured yet.
            made = secure_flags(load({"insecure": True}))
            loaded = load(made)
            if not print_config:
                output.note(
                    f"how the administrator connects: --client-config {made['bootstrap_user_file']}"
                )
                output.note("what each client needs besides a user:")
                for line in producer_lines(made):
                    output.note(f"  {line}")
        else:
            loaded = load({})
    except SettingsError as error:
        raise UsageError(
            str(error), hint="see all settings with: respool serve --print-config"
        ) from error
    if print_config:
        # All of them, as one who moves from another file goes through its lines one by one.
        for note in (*loaded.renamed, *loaded.accepted, *unknown_variables(os.environ)):
            output.note(note)
        output.print_line(write_example(loaded).rstrip("\n"))
        return

    from respool.node.node import run

    try:
        code = run(loaded)
    except RespoolError as error:
        raise OperatorError(f"the broker could not start: {error}") from error
    raise typer.Exit(code)
