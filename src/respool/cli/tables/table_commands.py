"""`respool table`: keep topics as Delta or Iceberg tables: create, run, status, compact, expire."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.interrupts import calling_on_signals
from respool.model.operator_errors import UsageError
from respool.model.quantities import counted

if TYPE_CHECKING:
    from respool.tables.formats.table_log import TableLog
    from respool.tables.service.table_service import ServiceEvent
    from respool.tables.upkeep.table_operations import TableStatus

app = typer.Typer(
    no_args_is_help=True,
    help="Keep topics as Delta or Iceberg tables: each message once, from the first one on.",
)

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", parser=options.topic_name, help="The topic.", show_default=False
    ),
]
_SHARE = "1/1"


@app.command(
    epilog="Settings are written into the topic (respool.table.*), and changed with: respool topic alter TOPIC "
    "--set respool.table.interval.ms=10s\n\n"
    "Examples:\n"
    "  respool table create rides --at /data/lake/rides\n"
    "  respool table create rides --format iceberg --at s3://b/rides --catalog glue\n"
    "  respool table create rides --at /lake/rides --schema 'declared:fare double'"
)
@to_broker
def create(
    topic: Topic,
    *,
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="FOLDER|URL",
            help="Where the table is: a folder, or a URL such as s3://bucket/rides.",
            show_default=False,
        ),
    ],
    table_format: Annotated[
        str, typer.Option("--format", metavar="delta|iceberg", help="The table's format.")
    ] = "delta",
    schema: Annotated[
        str,
        typer.Option(
            metavar="SCHEMA",
            help="How values are decoded: raw, infer (JSON), 'declared:COLUMNS' (JSON), registry, registry:latest, "
            "'avro:SCHEMA' or 'protobuf:TEXT'; or @FILE with that text in it.",
        ),
    ] = "raw",
    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="The schema registry, for --schema registry.")
    ] = None,
    catalog: Annotated[
        str | None,
        typer.Option(
            metavar="CATALOG",
            help="Catalog of an Iceberg table: rest:URL, hive:URL, glue, or named:NAME from pyiceberg's configuration.",
            show_default="SQLite in the table's folder",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of an Iceberg table in its catalog: NAME or NAMESPACE.NAME."
        ),
    ] = None,
    settings: options.Set = None,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Create an empty table for a topic. respool table run then fills it, beginning with the first message."""
    from respool.operate.errors import client_errors_translated
    from respool.tables.upkeep.table_operations import create_table

    wanted = {
        name if name.startswith("respool.") else f"respool.table.{name}": value
        for name, value in options.settings_in_plain_numbers(settings).items()
    }
    given = {
        "respool.table": table_format,
        "respool.table.location": _location(at),
        "respool.table.schema": _schema(schema),
        "respool.table.registry": registry,
        "respool.table.catalog": catalog,
        "respool.table.name": name,
    }
    wanted |= {name: value for name, value in given.items() if value is not None}
    cluster = connection.connect().cluster
    with client_errors_translated():
        log = create_table(cluster, topic, wanted)
        columns = log.load().schema
    if as_json:
        output.print_json(
            {
                "topic": topic,
                "format": table_format,
                "location": wanted["respool.table.location"],
                "columns": [{"column": one.name, "arrow_type": str(one.type)} for one in columns],
            }
        )
        return
    output.note(
        f"created a {table_format} table with {counted(len(columns), 'column')} at {wanted['respool.table.location']}; "
        f"fill it with: respool table run {topic}"
    )


@app.command(
    epilog="It runs until Ctrl-C or SIGTERM. Its position is in the table itself: killed at any moment and started "
    "again, it continues without gaps or duplicates; two at once do no harm, and several share with --share.\n\n"
    "Examples:\n"
    "  respool table run rides\n"
    "  respool table run rides --once\n"
    "  respool table run rides --share 1/2\n"
    "  respool table run rides --share 2/2"
)
@to_broker
def run(
    topic: Topic,
    *,
    once: Annotated[
        bool,
        options.flag("--once", text="Exit when the table has everything that the topic has now."),
    ] = False,
    share: Annotated[
        str,
        typer.Option(
            metavar="N/M", help="This is writer N of M (from 1): it takes every M-th partition."
        ),
    ] = _SHARE,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Write a topic to its table: existing messages first, then new ones every respool.table.interval.ms."""
    from respool.operate.errors import client_errors_translated
    from respool.tables.service.table_service import TableService

    taken = _share(share)
    cluster = connection.connect().cluster

    def tell(event: "ServiceEvent") -> None:
        if event.is_problem:
            output.note(event.message)
        elif as_json and not once and event.result is not None:
            output.print_json(_counts(topic, event.result))
        elif not as_json:
            output.note(event.message)

    service = TableService(cluster, topic, share=taken, on_event=tell)
    with (
        client_errors_translated(),
        calling_on_signals((signal.SIGINT, signal.SIGTERM), service.stop),
    ):
        total = service.run(once=once)
    if as_json and once:
        output.print_json(_counts(topic, total))
    elif not as_json:
        output.note(
            f"wrote {counted(total.rows, 'row')}, rejected {counted(total.rejected, 'record')}"
        )


@app.command(
    epilog="Piped, one line with tabs for each partition: partition, position, log start, log end, lag.\n\n"
    "Examples:\n  respool table status rides\n  respool table status rides --json"
)
@to_broker
def status(topic: Topic, *, as_json: options.Json = False, connection: BrokerConnection) -> None:
    """Show a table: its positions in the topic, size, columns and rejected records."""
    from respool.operate.errors import client_errors_translated
    from respool.tables.upkeep.table_operations import table_status

    cluster = connection.connect().cluster
    with client_errors_translated():
        found = table_status(cluster, topic)
    if as_json:
        output.print_json(found.document())
        return
    _print_status(found)


@app.command(
    epilog="respool table run does it by itself, every ten minutes.\n\nExample:\n  respool table compact rides"
)
@to_broker
def compact(
    topic: Topic,
    *,
    smaller_than: Annotated[
        str, typer.Option(metavar="SIZE", help="Join files smaller than this.")
    ] = "64MiB",
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Join small files of a table. Rows do not change; readers and writers are not interrupted."""
    from respool.tables.service.table_service import new_random
    from respool.tables.upkeep.joining_files import compact as join_files

    small = options.byte_count(smaller_than, option="--smaller-than", or_word="64MiB")
    log = _opened(topic, connection)
    result = join_files(log, new_random=new_random, small_bytes=small, files_min=2)
    if as_json:
        output.print_json(
            {
                "topic": topic,
                "joined_count": result.joined,
                "made_count": result.made,
                "bytes": result.bytes,
            }
        )
        return
    output.note(f"joined {counted(result.joined, 'file')} into {result.made}")


@app.command(
    epilog="respool table run forgets versions by itself; files are deleted here only.\n\n"
    "Examples:\n  respool table expire rides\n  respool table expire rides --keep 10 --files-older-than 12h"
)
@to_broker
def expire(
    topic: Topic,
    *,
    keep: Annotated[int, typer.Option(min=1, metavar="N", help="Versions to keep.")] = 100,
    older_than: Annotated[
        str, typer.Option(metavar="DURATION", help="Also remove versions older than this.")
    ] = "5d",
    files_older_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Minimum age of unreferenced files to delete; must exceed the longest query.",
        ),
    ] = "3d",
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Remove old versions of a table, and delete the files that no other version uses."""
    import time

    from respool.tables.upkeep.expiry import expire as expire_table

    kept_ms = options.duration_ms(older_than, option="--older-than")
    files_kept_ms = options.duration_ms(
        files_older_than, option="--files-older-than", at_least="0ms"
    )
    log = _opened(topic, connection)
    result = expire_table(
        log,
        now_ms=time.time_ns() // 1_000_000,
        kept=keep,
        kept_ms=kept_ms,
        files_kept_ms=files_kept_ms,
    )
    if as_json:
        output.print_json(
            {"topic": topic, "version_count": result.versions, "file_count": result.files}
        )
        return
    output.note(
        f"forgot {counted(result.versions, 'version')}, deleted {counted(result.files, 'file')}"
    )


def _opened(topic: str, connection: BrokerConnection) -> "TableLog":
    from respool.operate.errors import client_errors_translated
    from respool.tables.formats.opening import open_table
    from respool.tables.writing.topic_source import BrokerSource

    source = BrokerSource(connection.connect().cluster, topic)
    with client_errors_translated():
        return open_table(source.settings(), topic, partitions=len(source.ends()))


def _location(text: str) -> str:
    """A local folder becomes an absolute path, since the writer may start in another folder."""
    return text if "://" in text else str(Path(text).absolute())


def _schema(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--schema {text}: the file cannot be read as text: {error}") from None


def _share(text: str) -> Any:
    from respool.tables.service.table_service import WriterShare

    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UsageError(f"--share {text!r} is not N/M, such as 1/2: this is writer 1 of 2")
    return WriterShare(index=int(number) - 1, count=int(count))


def _counts(topic: str, result: Any) -> dict[str, Any]:
    return {
        "topic": topic,
        "row_count": result.rows,
        "file_count": result.files,
        "rejected_count": result.rejected,
        "commit_count": result.commits,
        "deleted_offset_count": result.gaps,
    }


def _print_status(found: "TableStatus") -> None:
    lag = sum(one.lag for one in found.partitions)
    if output.is_terminal():
        output.print_heading(f"{found.settings.respool_table} table of {found.topic}")
        rejected = "none" if found.rejected is None else f"{found.rejected:,}"
        facts = {
            "location": found.settings.respool_table_location,
            "schema": str(found.settings.respool_table_schema),
            "version": found.version,
            "rows": f"{found.rows:,}",
            "files": f"{found.files:,}, {found.bytes:,} bytes",
            "rejected": rejected,
            "behind by": f"{lag:,} offsets",
            "columns": ", ".join(found.columns.names),
        }
        for name, value in facts.items():
            output.print_line(f"{name}: {value}")
        if found.foreign_files:
            output.print_line(f"files of other writers: {found.foreign_files:,}")
    if found.problem:
        output.note(f"problem: {found.problem}")
    numbers = ("partition", "position", "log start", "log end", "lag")
    rows = [
        (one.partition, one.position, one.log_start, one.log_end, one.lag)
        for one in found.partitions
    ]
    output.print_rows(output.Headings(*numbers, numbers=numbers), rows)
