"""`respool mirror`: keep a copy of topics in another cluster, with the same offsets, and take over from it."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from respool.cli import options, output
from respool.model.operator_errors import NotFound, UsageError

DEFAULT_COMMAND = "run"
EPILOG = (
    "It goes on until Ctrl-C or SIGTERM. Where it was is nowhere but in the copy itself: killed at any moment, on "
    "either side, and started again, it goes on without gaps or duplicates. Two at once do no harm.\n\n"
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
        help="The source: any broker that speaks Kafka's protocol; several, with commas, for a cluster.",
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
        help="The topics, by a regular expression for their whole names; may be repeated.",
    ),
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="REGEX", help="Not these of them.")
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
            help="Also copy how far these groups have read, every 10 seconds.",
        ),
    ] = None,
    once: Annotated[
        bool, options.flag("--once", text="End when all is copied that is there now.")
    ] = False,
    keep_longer: Annotated[
        bool,
        options.flag(
            "--keep-longer",
            text="Do not delete from the copy what the source deletes at its start.",
        ),
    ] = False,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="How often to tell how it is doing.")
    ] = "10s",
    status_json: Annotated[
        bool, options.flag("--status-json", text="Tell that as lines of JSON on standard output.")
    ] = False,
) -> None:
    """Copy topics to another cluster, with the same offsets, and follow them as they grow."""
    from respool.mirror.target_topics import Wanted, parse_patterns

    source, target = _both(source, target)
    if not topics:
        raise UsageError("--topics is missing", hint="all of them: --topics '.*'")
    wanted = Wanted(
        parse_patterns(topics, option="--topics"), parse_patterns(exclude or (), option="--exclude")
    )
    group_patterns = parse_patterns(groups or (), option="--groups")
    seconds = options.duration_ms(interval, option="--interval", at_least="100ms") / 1000

    import asyncio

    import uvloop

    from respool.mirror.mirror_run import MirrorPlan, MirrorRun

    plan = MirrorPlan(
        source=source,
        target=target,
        topics=wanted,
        groups=group_patterns,
        once=once,
        keep_longer=keep_longer,
        as_json=status_json,
        interval_seconds=seconds,
    )
    mirror = MirrorRun(plan)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(mirror.run())


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
    from respool.mirror.comparison import find_status, print_status
    from respool.mirror.mirror_run import connect_both
    from respool.mirror.target_topics import Wanted, parse_patterns

    source, target = _both(source, target)
    wanted = Wanted(
        parse_patterns(topics or [".*"], option="--topics"),
        parse_patterns(exclude or (), option="--exclude"),
    )
    found = find_status(*connect_both(source, target), wanted)
    if not found:
        raise NotFound(f"no topic at {source} matches", hint=f"see: respool topic list -b {source}")
    print_status(found, as_json=as_json)


@app.command(
    epilog="Stop the mirror of these topics before, once 'respool mirror status' shows that nothing is behind, if the "
    "source still answers.\n\nExample:\n  respool mirror promote rides fares --to 10.1.0.1:9092"
)
def promote(
    names: Annotated[
        list[str], typer.Argument(metavar="TOPIC...", help="The mirrors.", show_default=False)
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
            help="The cluster that has the copies.",
        ),
    ] = options.DEFAULT_BROKER,
    as_json: options.Json = False,
) -> None:
    """Turn mirrors into ordinary topics, which producers may write to: the copy takes over."""
    from respool.cli.kafka import Cluster
    from respool.mirror.promotion import promote as promote_one

    cluster = Cluster.connect(target)
    for name in names:
        # All of them are there before the first is changed.
        cluster.topic(name, hint=f"see: respool topic list --broker {target}")
    done = []
    try:
        for name in dict.fromkeys(names):
            done.append(promote_one(cluster, name))
            if not as_json:
                output.note(done[-1].in_words())
    finally:
        # Also where one failed: those before it take producers now.
        if as_json:
            output.print_json({"topics": [one.document() for one in done]})


def _both(source: str | None, target: str | None) -> tuple[str, str]:
    if source is None or target is None:
        raise UsageError(
            f"{'--from' if source is None else '--to'} is missing",
            hint="respool mirror --from SOURCE:PORT --to TARGET:PORT --topics REGEX",
        )
    if source == target:
        raise UsageError("--from and --to are the same; a mirror is in another cluster")
    return source, target
