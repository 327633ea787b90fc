"""`respool mirror`: keep a copy of topics in another cluster, with the same offsets, and fail over to it."""

import signal
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection
from respool.cli.interrupts import calling_on_signals
from respool.model.operator_errors import NotFound, OperatorError, UsageError

DEFAULT_COMMAND = "run"
# Between updates of the live table.
LIVE_SECONDS = 0.5
EPILOG = (
    "It runs until Ctrl-C or SIGTERM. Its position is stored nowhere but in the copy itself: killed at any moment, on "
    "either side, and started again, it continues without gaps or duplicates. Two at once do no harm.\n\n"
    "Examples:\n"
    "  respool mirror --from kafka-1:9092 --to 127.0.0.1:9092 --topics 'rides.*' --exclude 'rides-test.*'\n"
    "  respool mirror --from 10.0.0.1:9092 --to 10.1.0.1:9092 --topics '.*' --groups '.*'\n"
    "  respool mirror --from 10.0.0.1:9092 --to 10.1.0.1:9092 --topics rides --once"
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
def run(
    *,
    source: From = None,
    target: To = None,
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
    source, target = _both(source, target)
    if not topics:
        raise UsageError("--topics is missing", hint="all of them: --topics '.*'")
    interval_s = options.duration_ms(interval, option="--interval", at_least="100ms") / 1000
    from respool.cli.mirror_output import MirrorOutput
    from respool.mirror.mirror_handle import start_mirror

    shown = MirrorOutput(as_json=status_json)
    mirror = start_mirror(
        source,
        target,
        topics=topics,
        exclude=exclude or (),
        groups=groups or (),
        once=once,
        keep_longer=keep_longer,
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
    epilog="Example:\n  respool mirror status --from 10.0.0.1:9092 --to 10.1.0.1:9092 --topics 'rides.*'"
)
def status(
    *,
    source: From = None,
    target: To = None,
    topics: Topics = None,
    exclude: Exclude = None,
    as_json: options.Json = False,
) -> None:
    """Show source and copy side by side: where each partition begins and ends, and how far the copy is behind."""
    from respool.cli.mirror_output import print_comparison
    from respool.mirror.comparison import compare_partitions
    from respool.mirror.mirror_run import connect_both
    from respool.mirror.target_topics import TopicFilter, parse_patterns

    source, target = _both(source, target)
    wanted = TopicFilter(
        parse_patterns(topics or [".*"], option="--topics"),
        parse_patterns(exclude or (), option="--exclude"),
    )
    found = compare_partitions(*connect_both(source, target), wanted)
    if not found:
        raise NotFound(f"no topic at {source} matches", hint=f"see: respool topic list -b {source}")
    print_comparison(found, as_json=as_json)


@app.command(
    epilog="If the source still answers, first wait until 'respool mirror status' shows 0 behind, and stop the "
    "mirror.\n\nExample:\n  respool mirror promote rides fares --to 10.1.0.1:9092"
)
def promote(
    names: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="The mirror topics.", show_default=False)
    ],
    *,
    target: Annotated[
        str,
        typer.Option(
            "--to",
            "--broker",
            "-b",
            envvar="RESPOOL_BROKER",
            metavar="HOST:PORT",
            help="The cluster with the copies.",
        ),
    ] = options.DEFAULT_BROKER,
    as_json: options.Json = False,
) -> None:
    """Fail over: turn mirrors into ordinary topics that producers may write to."""
    from respool.cli.kafka import Cluster
    from respool.mirror.promotion import promote as promote_one

    cluster = Cluster.connect(BrokerConnection(bootstrap=target))
    for name in names:
        # Check that all of them exist before the first is changed.
        cluster.topic(name, hint=f"see: respool topic list --broker {target}")
    done = []
    try:
        for name in dict.fromkeys(names):
            done.append(promote_one(cluster, name))
            if not as_json:
                output.note(done[-1].in_words())
    finally:
        # Also if one failed: those before it are promoted.
        if as_json:
            output.print_json({"topics": [one.document() for one in done]})


def _both(source: str | None, target: str | None) -> tuple[str, str]:
    if source is None or target is None:
        raise UsageError(
            f"{'--from' if source is None else '--to'} is missing",
            hint="respool mirror --from SOURCE:PORT --to TARGET:PORT --topics REGEX",
        )
    if source == target:
        raise UsageError("--from and --to are the same; a mirror is a copy in another cluster")
    return source, target
