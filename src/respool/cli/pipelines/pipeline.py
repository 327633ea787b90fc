"""`respool pipeline`: the ride company's jobs on Spark."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker_or_bootstrap
from respool.model.errors import RespoolError
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from respool.model.quantities import counted

if TYPE_CHECKING:
    from respool.pipeline.job_settings import ModelChoice

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# The master URLs that Spark accepts; others fail with a Java stack trace. Plug-ins may add schemes.
_COUNT = r"(\d+|\*)"
_MASTER = re.compile(
    rf"local|local\[{_COUNT}(, *\d+)?\]|local-cluster\[[\d, ]+\]|yarn|[a-z][a-z0-9]*://.+"
)
# Packages that commands import. The extras `pipeline` and `report` bring them.
RUN_NEEDS = ("pyspark", "deltalake", "pyarrow", "numba")
TABLES_NEED = ("deltalake", "pyarrow")

app = typer.Typer(no_args_is_help=True, help="Run the ride company's jobs on Spark.")

# Duplicated here so that help output does not import the jobs; a test compares both lists.
JOBS = {
    "bronze": "every event of the topic as it came, by day",
    "silver": "typed, sound events, each once; the others into quarantine",
    "gold": "fares, cities and drivers in windows of event time",
    "fraud": "score rides as they end, into a table and a topic",
    "replay-fraud": "a model over past days, compared with the live scores",
    "warehouse": "one row for each ride, from where it stands in the topic",
}
_WIDTH = max(map(len, JOBS))
EPILOG = (
    "Jobs:\n"
    + "\n".join(f"  {name:<{_WIDTH}}  {text}" for name, text in JOBS.items())
    + "\n\nA job that was stopped continues where it was, and adds nothing twice. Several jobs share one Spark.\n\n"
    "Examples:\n"
    "  respool pipeline run bronze silver gold --data ./lake\n"
    "  respool pipeline run fraud --data ./lake --truth truth.parquet\n"
    "  respool pipeline run replay-fraud --new-model v2:logistic --truth t.parquet\n"
    "  respool pipeline run warehouse --data ./lake --master spark://host:7077\n"
    "  respool pipeline run bronze silver gold fraud --data ./lake --continuous"
)


Data = Annotated[
    Path,
    typer.Option(
        metavar="DIR", help="Tables, checkpoints, models and reports; a shared folder on a cluster."
    ),
]


@app.command(epilog=EPILOG)
@to_broker_or_bootstrap
def run(
    jobs: Annotated[
        list[str],
        typer.Argument(metavar="JOB...", show_default=False, help=" | ".join(JOBS)),
    ],
    *,
    data: Data = Path("respool-lake"),
    master: Annotated[
        str, typer.Option(metavar="MASTER", help="Where Spark runs: local[2], spark://host:7077.")
    ] = "local[*]",
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf", metavar="NAME=VALUE", help="A setting of Spark; may be given several times."
        ),
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous/--once",
            help="Process events as they come, until Ctrl-C; or process those that exist, and end.",
        ),
    ] = False,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="With --continuous: how often, such as 10s.")
    ] = "10s",
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            parser=options.topic_name,
            help="Where the ride events are.",
        ),
    ] = "rides",
    scores_topic: Annotated[
        str,
        typer.Option(
            metavar="TOPIC", parser=options.topic_name, help="Where fraud writes its scores."
        ),
    ] = "fraud-scores",
    lateness: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Events later than this go into quarantine; windows stay open for as long.",
        ),
    ] = "2h",
    window: Annotated[
        str, typer.Option(metavar="TIME", help="How long gold's windows are.")
    ] = "1h",
    batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="The most events in one step of a job.")
    ] = 2_000_000,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME[:RECIPE]",
            help="fraud: the model, and how it is trained if it is not there: forest or logistic.",
        ),
    ] = "v1:forest",
    new_model: Annotated[
        str, typer.Option(metavar="NAME[:RECIPE]", help="replay-fraud: the same, for its model.")
    ] = "v2:forest",
    threshold: Annotated[
        float,
        typer.Option(min=0.0, max=1.0, metavar="SCORE", help="A ride is called fraud from it on."),
    ] = 0.5,
    truth: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What is known of the rides (respool rides generate --truth): to train, and to measure.",
        ),
    ] = None,
    days: Annotated[
        float, typer.Option(metavar="DAYS", help="replay-fraud: how far back, from --until.")
    ] = 3.0,
    until: Annotated[
        str, typer.Option(metavar="TIME", help="replay-fraud: where the window ends.")
    ] = "now",
    from_start: Annotated[
        bool,
        options.flag(
            "--from-start", text="warehouse: read the log from its start; the table stays as it is."
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        options.flag(
            "--accept-loss",
            text="bronze, warehouse: continue although the topic deleted events that they had not read.",
        ),
    ] = False,
    as_json: Annotated[
        bool, options.flag("--json", text="Print what was counted as JSON.")
    ] = False,
    connection: BrokerConnection,
) -> None:
    """Run jobs one after the other, each up to the end of what there is."""
    _check_jobs(jobs, continuous=continuous)
    if not _MASTER.fullmatch(master):
        raise UsageError(
            f"--master {master!r} is no Spark master",
            hint="local[2] is this machine with two threads, spark://HOST:7077 a cluster; also yarn and k8s://HOST",
        )
    if truth is not None and not truth.is_file():
        raise NotFound(f"there is no file {str(truth)!r} for --truth")
    if not 0 < days <= 366:
        raise UsageError(f"--days {days:g}: more than 0, and at most 366")
    until_ms = options.time_ms(until, option="--until")
    spark_settings = options.parse_assignments(conf, option="--conf")
    every_ms = options.duration_ms(every, option="--every")
    _check_packages(RUN_NEEDS, extra="pipeline")

    from respool.cli.pipelines import pipeline_run
    from respool.pipeline.job_settings import PipelineSettings

    settings = PipelineSettings(
        data=data.absolute(),
        bootstrap=connection.bootstrap,
        security=connection.security,
        client={} if connection.config is None else connection.config.cluster_settings(),
        topic=topic,
        scores_topic=scores_topic,
        lateness_ms=options.duration_ms(lateness, option="--lateness"),
        window_ms=options.duration_ms(window, option="--window"),
        rows_per_batch=batch,
        model=_model(model, "--model"),
        new_model=_model(new_model, "--new-model"),
        threshold=threshold,
        truth=None if truth is None else truth.absolute(),
        replay_since_ms=until_ms - round(days * DAY_MS),
        replay_until_ms=until_ms,
        from_start=from_start,
        accept_loss=accept_loss,
    )
    pipeline_run.run(
        jobs,
        settings,
        connection,
        master=master,
        spark_settings=spark_settings,
        every_ms=every_ms if continuous else None,
        as_json=as_json,
    )


@app.command(epilog="Example:\n  respool pipeline report --data ./lake")
def report(*, data: Data = Path("respool-lake")) -> None:
    """Write an HTML page of what is in the tables. It needs no Spark (extra: report)."""
    _check_packages(TABLES_NEED, extra="report")
    _check_lake(data)

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.report import write_report

    with _errors_in_words():
        output.print_line(str(write_report(PipelineSettings(data=data.absolute()))))


@app.command(epilog="Example:\n  respool pipeline clean --data ./lake --keep 30d")
def clean(
    *,
    data: Data = Path("respool-lake"),
    keep: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Versions so old can no longer be read; an hour at least."
        ),
    ] = "7d",
) -> None:
    """Delete files that tables no longer need: replaced ones, and those of tries that failed."""
    _check_packages(TABLES_NEED, extra="report")
    # Younger files may be in use by a running job or a reader.
    hours = -(-options.duration_ms(keep, option="--keep", at_least="1h") // HOUR_MS)
    _check_lake(data)

    from respool.pipeline.job_settings import PipelineSettings
    from respool.pipeline.table_schemas import SCHEMAS, table

    settings = PipelineSettings(data=data.absolute())
    with _errors_in_words():
        dropped = {name: table(settings, name).clean(kept_hours=hours) for name in SCHEMAS}
    output.print_rows(
        output.Headings("table", "deleted", numbers=["deleted"]),
        [row for row in dropped.items() if row[1]],
    )
    output.note(f"{counted(sum(dropped.values()), 'file')} deleted")


@contextmanager
def _errors_in_words() -> Iterator[None]:
    try:
        yield
    except OperatorError:
        raise
    except RespoolError as error:
        raise OperatorError(str(error)) from error


def _check_lake(data: Path) -> None:
    if not (data / "tables").is_dir():
        raise NotFound(
            f"there are no tables in {str(data)!r}", hint="run first: respool pipeline run bronze"
        )


def _check_jobs(jobs: list[str], *, continuous: bool) -> None:
    for name in jobs:
        if name not in JOBS:
            raise UsageError(f"there is no job {name!r}", hint=f"there are: {', '.join(JOBS)}")
        if jobs.count(name) > 1:
            raise UsageError(f"the job {name} is given twice")
    if continuous and "replay-fraud" in jobs:
        raise UsageError(
            "replay-fraud cannot be combined with --continuous: it ends where its window does"
        )


def _check_packages(needed: tuple[str, ...], *, extra: str) -> None:
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        from respool.model.extras import how_to_install

        raise OperatorError(
            f"this command needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            hint=f"install them: {how_to_install(extra)}",
        )


def _model(text: str, option: str) -> "ModelChoice":
    from respool.pipeline.job_settings import ModelChoice

    name, _colon, recipe = text.partition(":")
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name[0] == ".":
        raise UsageError(f"{option} {text!r}: letters, digits, '-', '_' and '.', and no '.' first")
    if recipe not in {"", "forest", "logistic"}:
        raise UsageError(f"{option} {text!r}: the recipe is forest or logistic, not {recipe!r}")
    return ModelChoice(name=name, recipe="logistic" if recipe == "logistic" else "forest")
