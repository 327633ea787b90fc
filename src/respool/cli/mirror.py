"""`respool mirror`: keep a copy of topics in another cluster, with the same offsets, and fail over to it."""

import signal
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from respool.cli import options, output
from respool.cli.connection_options import (
    CONFIG_VARIABLE,
    PANEL,
    BrokerConnection,
    ClientConfigFile,
    Mechanism,
    PasswordFile,
    Protocol,
    SecurityOptions,
    TlsCa,
    TlsCert,
    TlsKey,
    Username,
    broker_connection,
    connection_to,
)
from respool.cli.interrupts import calling_on_signals
from respool.cli.options import option_group
from respool.client.kafka.bootstrap import DEFAULT_BOOTSTRAP, ENVIRONMENT
from respool.model.operator_errors import NotFound, OperatorError, UsageError

DEFAULT_COMMAND = "run"
# The interval between updates of the live table.
LIVE_SECONDS = 0.5
EPILOG = (
    "It runs until Ctrl-C or SIGTERM. Its position is stored nowhere but in the copy itself: killed at any moment, on "
    "either side, and started again, it continues without gaps or duplicates. Two at once do no harm.\n\n"
    "Examples:\n"
    "  respool mirror --from kafka-1:9092 --to 127.0.0.1:9092 --topics 'rides.*'\n"
    "  respool mirror --from a:9092 --to b:9092 --topics '.*' --groups '.*'\n"
    "  respool mirror --from a:9092 --to b:9092 --topics rides --once"
)

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="HOST:PORT",
        help="The source: any broker that speaks Kafka's protocol; several brokers of a cluster, separated by commas.",
    ),
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="HOST:PORT", help="The target: a Respool broker or cluster."),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topics",
        metavar="REGEX",
        help="Topics to mirror: a regular expression for the whole name. May be repeated.",
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="REGEX", help="Topics to leave out. May be repeated."),
]


PromotedAt = Annotated[
    str | None,
    typer.Option(
        "--to",
        "--broker",
        "-b",
        envvar=ENVIRONMENT,
        metavar="HOST:PORT",
        help="The cluster with the copies.",
        show_default=DEFAULT_BOOTSTRAP,
    ),
]
FromConfig = Annotated[
    Path | None,
    typer.Option(
        "--from-client-config",
        metavar="FILE",
        help="A file of Kafka's client properties for the source; all other security options are for the target.",
        rich_help_panel=PANEL,
    ),
]


class BothClusters(NamedTuple):
    source: BrokerConnection
    target: BrokerConnection


def both_clusters(
    *,
    source: From = None,
    target: To = None,
    from_client_config: FromConfig = None,
    security_protocol: Protocol = None,
    sasl_mechanism: Mechanism = None,
    username: Username = None,
    password_file: PasswordFile = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    client_config: ClientConfigFile = None,
) -> BothClusters:
    """
    Raises:
        UsageError: an address is missing, or options contradict each other.
    """
    given = SecurityOptions(
        protocol=security_protocol,
        mechanism=sasl_mechanism,
        username=username,
        password_file=password_file,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
    )
    at_source = BrokerConnection(bootstrap=source or "")
    if from_client_config is not None:
        at_source = connection_to(
            source,
            SecurityOptions(),
            from_client_config,
            config_option="--from-client-config",
            variable=None,
        )
    _check_address("--from", source, "--from-client-config", from_client_config, at_source)
    at_target = connection_to(target, given, client_config, variable=None)
    _check_address("--to", target, "--client-config", client_config, at_target)
    for connection in (at_source, at_target):
        if connection.config is not None and connection.config.client_id is not None:
            from respool.records.mirrored_batches import MIRROR_CLIENT_ID

            output.note(
                f"client.id of {connection.config.origin} is not used: brokers know a mirror by the client id "
                f"{MIRROR_CLIENT_ID}"
            )
    if at_source.bootstrap == at_target.bootstrap:
        raise UsageError("--from and --to are the same; a mirror is a copy in another cluster")
    return BothClusters(at_source, at_target)


def _check_address(
    option: str,
    address: str | None,
    config_option: str,
    file: Path | None,
    connection: BrokerConnection,
) -> None:
    """No cluster of a mirror has a default address: the wrong one could be written to.

    Raises:
        UsageError: neither the option nor the file, which may be that of RESPOOL_CLIENT_CONFIG, has an address.
    """
    if address is not None:
        return
    why = ""
    if connection.config is not None:
        if connection.config.servers is not None:
            return
        named = config_option if file is not None else CONFIG_VARIABLE
        why = f", and {named} {connection.config.origin} has no bootstrap.servers"
    raise UsageError(
        f"{option} is missing{why}",
        hint="respool mirror --from SOURCE:PORT --to TARGET:PORT --topics REGEX",
    )


def _timeouts(connection: BrokerConnection) -> dict[str, int]:
    """The timeouts of the connection's file."""
    return {} if connection.config is None else connection.config.timeouts()


class MirrorGroup(TyperGroup):
    """`respool mirror --from …` means `respool mirror run --from …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=MirrorGroup,
    no_args_is_help=True,
    help="Keep a copy of topics in another cluster: respool mirror --from HOST:PORT --to HOST:PORT --topics REGEX.",
    epilog="respool mirror --from … is short for respool mirror run --from …; see respool mirror run --help",
)


@app.command(DEFAULT_COMMAND, epilog=EPILOG)
@option_group("clusters", both_clusters)
def run(
    *,
    clusters: BothClusters,
    topics: Topics = None,
    exclude: Exclude = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX",
            help="Also copy the committed offsets of these groups, every 10 seconds.",
        ),
    ] = None,
    once: Annotated[
        bool,
        options.flag("--once", text="Exit when everything is copied that is there at the start."),
    ] = False,
    keep_longer: Annotated[
        bool,
        options.flag(
            "--keep-longer",
            text="Keep records in the copy that the source deletes (retention, DeleteRecords).",
        ),
    ] = False,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="How often to print the status.")
    ] = "10s",
    status_json: Annotated[
        bool,
        options.flag("--status-json", text="Print the status as lines of JSON on standard output."),
    ] = False,
) -> None:
    """Copy topics to another cluster, with the same offsets, and follow them as they grow."""
    if not topics:
        raise UsageError("--topics is missing", hint="all of them: --topics '.*'")
    interval_s = options.duration_ms(interval, option="--interval", at_least="100ms") / 1000
    from respool.cli.mirror_output import MirrorOutput
    from respool.mirror.mirror_handle import start_mirror

    shown = MirrorOutput(as_json=status_json)
    mirror = start_mirror(
        clusters.source.bootstrap,
        clusters.target.bootstrap,
        topics=topics,
        exclude=exclude or (),
        groups=groups or (),
        once=once,
        keep_longer=keep_longer,
        from_security=clusters.source.security,
        to_security=clusters.target.security,
        from_timeouts=_timeouts(clusters.source),
        to_timeouts=_timeouts(clusters.target),
        on_event=shown.print_event,
    )
    with calling_on_signals((signal.SIGINT, signal.SIGTERM), mirror.request_stop) as caught, mirror:
        with shown.shown():
            mirror.wait_until_started()
            while mirror.is_running:
                shown.print_status(mirror.status())
                with suppress(OperatorError):
                    # It is raised again when the mirror is stopped.
                    mirror.wait(LIVE_SECONDS if shown.is_live else interval_s)
            shown.print_status(mirror.status())
        if caught.is_set():
            output.note("stopped; the next start continues where the copies end")


@app.command(
    epilog="Example:\n  respool mirror status --from a:9092 --to b:9092 --topics 'rides.*'"
)
@option_group("clusters", both_clusters)
def status(
    *,
    clusters: BothClusters,
    topics: Topics = None,
    exclude: Exclude = None,
    as_json: options.Json = False,
) -> None:
    """Show source and copy side by side: where each partition begins and ends, and how far the copy is behind."""
    from respool.cli.mirror_output import print_comparison
    from respool.mirror.clusters import connected
    from respool.mirror.comparison import compare_partitions
    from respool.mirror.target_topics import TopicFilter, parse_patterns

    wanted = TopicFilter(
        parse_patterns(topics or [".*"], option="--topics"),
        parse_patterns(exclude or (), option="--exclude"),
    )
    source, target = clusters
    with connected(
        source.bootstrap,
        target.bootstrap,
        from_security=source.security,
        to_security=target.security,
        from_timeouts=_timeouts(source),
        to_timeouts=_timeouts(target),
    ) as both:
        found = compare_partitions(*both, wanted)
    if not found:
        raise NotFound(
            f"no topic at {source.bootstrap} matches",
            hint=f"see: respool topic list -b {source.bootstrap}",
        )
    print_comparison(found, as_json=as_json)


@app.command(
    epilog="If the source still answers, first wait until 'respool mirror status' shows 0 behind, and stop the "
    "mirror.\n\nExample:\n  respool mirror promote rides fares --to b:9092"
)
@option_group("connection", broker_connection, broker=PromotedAt)
def promote(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC...",
            parser=options.topic_name,
            help="The mirror topics.",
            show_default=False,
        ),
    ],
    *,
    yes: options.Yes = False,
    connection: BrokerConnection,
    as_json: options.Json = False,
) -> None:
    """Fail over: turn mirrors into ordinary topics that producers may write to. On a terminal it asks first."""
    from respool.cli.mirror_output import promotion_document
    from respool.mirror.clusters import connect
    from respool.mirror.promotion import check_topics
    from respool.mirror.promotion import promote as promote_one

    done = []
    settings = {} if connection.config is None else connection.config.cluster_settings()
    if not yes:
        topics = ", ".join(dict.fromkeys(names))
        output.confirm_on_terminal(
            f"Mirrors will no longer write to {topics}, and transactions open there are aborted. Promote?"
        )
    with closing(
        connect("the cluster", connection.bootstrap, connection.security, settings)
    ) as cluster:
        # Check that all topics exist before changing the first.
        check_topics(cluster, names)
        try:
            for name in dict.fromkeys(names):
                done.append(promote_one(cluster, name))
                if not as_json:
                    output.note(str(done[-1]))
        finally:
            # Print even if one failed: the topics before it are promoted.
            if as_json:
                output.print_json({"topics": [promotion_document(one) for one in done]})
