"""`respool rides`: a ride company's events, generated from a seed, for demos, benchmarks and tests of pipelines."""

from pathlib import Path
from typing import Annotated, Any

import typer

from respool.cli import options
from respool.cli.connection_options import BrokerConnection, to_broker_or_bootstrap
from respool.cli.messages.produce import Compression
from respool.model.operator_errors import NotFound, OperatorError, UsageError

DAY_MS = 86_400_000
DAYS_MAX = 366
DEFAULT_RATE = "10/s"

app = typer.Typer(no_args_is_help=True, help="Make up the events of a ride company.")

EPILOG = (
    "The same seed, --until and options give the same events, byte for byte. docs/rides.md says what is in them.\n\n"
    "Examples:\n"
    "  respool rides generate --days 3 --rate 50\n"
    "  respool rides generate --count 1000000 --partitions 6 --truth truth.parquet\n"
    "  respool rides generate --rate 200 --live --for 10m\n"
    "  respool rides generate --until 2026-11-12T08:00Z --seed 7 --print 5"
)


def _share(text: str) -> Any:
    return typer.Option(min=0.0, max=0.5, metavar="SHARE", help=text)


@app.command(epilog=EPILOG)
@to_broker_or_bootstrap
def generate(
    *,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            parser=options.topic_name,
            help="It is created when it is not there.",
        ),
    ] = "rides",
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How many, for a topic that is created.",
            show_default="the broker's num_partitions",
        ),
    ] = None,
    days: Annotated[
        float,
        typer.Option(metavar="DAYS", help="How long the history is, up to --until."),
    ] = 1.0,
    until: Annotated[
        str,
        typer.Option(metavar="TIME", help="Where the history ends, such as 2026-11-12T08:00Z."),
    ] = "now",
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="Events per second of the history, on the average: 50/s.",
            show_default=DEFAULT_RATE,
        ),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Instead of --rate: exactly this number; the last comes a while before --until.",
        ),
    ] = None,
    live: Annotated[
        bool, options.flag("--live", text="After the history, continue with live events.")
    ] = False,
    live_for: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="TIME",
            help="With --live: how long, such as 10m.",
            show_default="until Ctrl-C",
        ),
    ] = None,
    cities: Annotated[
        str, typer.Option(metavar="N|NAMES", help="The N largest, or these: Köln,Bonn.")
    ] = "12",
    drivers: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Fewer mean more surge.", show_default="as many as are needed"
        ),
    ] = None,
    riders: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How many there are.",
            show_default="by the number of rides",
        ),
    ] = None,
    fraud_share: Annotated[
        float, _share("Share of rides that are fraud, in four patterns.")
    ] = 0.01,
    late_share: Annotated[
        float, _share("Share of events that arrive late, by minutes up to more than a day.")
    ] = 0.02,
    malformed_share: Annotated[
        float, _share("Share of events that are malformed, in one of eight ways.")
    ] = 0.001,
    duplicate_share: Annotated[float, _share("Share of events that are sent twice.")] = 0.005,
    seed: Annotated[int, typer.Option(metavar="N", help="Another one gives other rides.")] = 0,
    compression: Annotated[
        Compression, typer.Option(help="How batches are compressed.")
    ] = Compression.NONE,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A Parquet file for what events do not say: which are fraud, late, malformed, sent again.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, options.flag("--dry-run", text="Write no messages; count what would be written.")
    ] = False,
    print_count: Annotated[
        int | None,
        typer.Option(
            "--print",
            min=1,
            metavar="N",
            help="Write no messages; print the first N, as respool produce --json-lines reads them.",
        ),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", text="Print the summary as JSON.")] = False,
    connection: BrokerConnection,
) -> None:
    """Write the rides of the last days into a topic, and with --live those that come."""
    if rate is not None and count is not None:
        raise UsageError("--rate and --count cannot both be given")
    if live:
        _check_live(count=count, until=until, writes_nothing=dry_run or print_count is not None)
    elif live_for is not None:
        raise UsageError("--for needs --live")
    if truth is not None and not truth.absolute().parent.is_dir():
        raise NotFound(f"there is no folder {str(truth.absolute().parent)!r} for --truth")
    if not 0 < days <= DAYS_MAX:
        raise UsageError(f"--days {days:g}: it is an hour (0.042) to {DAYS_MAX} days")
    from respool.replay.pace import parse_rate

    until_ms = options.time_ms(until, option="--until")
    live_ms = options.duration_ms(live_for, option="--for") if live_for is not None else None
    plan = _plan(
        seed=seed,
        start_ms=until_ms - round(days * DAY_MS),
        until_ms=until_ms,
        rate=None if count is not None else parse_rate(rate or DEFAULT_RATE),
        count=count,
        cities=cities,
        riders=riders,
        drivers=drivers,
        fraud_share=fraud_share,
        late_share=late_share,
        malformed_share=malformed_share,
        duplicate_share=duplicate_share,
    )

    from respool.cli.pipelines import rides_run

    if print_count is not None:
        rides_run.print_events(plan, print_count, truth=truth)
        return
    target = None
    if not dry_run:
        target = rides_run.find_target(
            connection, topic, partitions=partitions, days=days, compression=compression.value
        )
    rides_run.generate(
        plan,
        target,
        truth=truth,
        is_live=live,
        live_ms=live_ms,
        as_json=as_json,
    )


def _check_live(*, count: int | None, until: str, writes_nothing: bool) -> None:
    if count is not None:
        raise UsageError(
            "--live cannot be combined with --count: its events follow from --rate and --for"
        )
    if until != "now":
        raise UsageError("--live cannot be combined with --until: it starts from now")
    if writes_nothing:
        raise UsageError("--live cannot be combined with --dry-run or --print")


def _plan(*, cities: str, **wanted: Any) -> Any:
    try:
        from respool.rides.cities import BadPlan, cities_from
        from respool.rides.records import RecordMaker  # noqa: F401 - fails now if a package is missing
        from respool.rides.ride_plan import RidePlan
    except ModuleNotFoundError as error:
        from respool.model.extras import how_to_install

        raise OperatorError(
            f"this command needs {error.name}, which is not installed",
            hint=f"install it: {how_to_install('arrow,client')}",
        ) from error
    try:
        return RidePlan(cities=cities_from(cities), **wanted)
    except BadPlan as error:
        raise UsageError(str(error)) from error
