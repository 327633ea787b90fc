"""`respool archive`: show, verify and export an archive, or restore a cluster from it, without a broker."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from respool.cli import options, output
from respool.cli.exit_codes import ExitCode
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError
from respool.model.quantities import counted

if TYPE_CHECKING:
    from respool.operate.archives.bucket_contents import StoredTopic
    from respool.ports.object_store import ObjectStore

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    help="Show an archive, verify it, and restore from it, without a broker.",
)

# List price of S3 Standard, to show the order of magnitude.
DOLLARS_PER_GIB_MONTH = 0.023

Address = Annotated[
    str,
    typer.Argument(
        metavar="ARCHIVE",
        help="The address, as in the setting archive: file:///folder, s3://bucket/prefix, ...",
        show_default=False,
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        parser=options.topic_name,
        help="Only this topic; repeatable.",
    ),
]
Endpoint = Annotated[
    str, typer.Option("--endpoint", metavar="URL", help="As the setting archive_endpoint.")
]
Region = Annotated[
    str, typer.Option("--region", metavar="NAME", help="As the setting archive_region.")
]
Credentials = Annotated[
    str,
    typer.Option("--credentials-file", metavar="FILE", help="As archive_credentials_file."),
]


@app.command(
    epilog="Piped, the columns are separated by tabs: topic, partition, first, end, segments, bytes, problem.\n\n"
    "Examples:\n  respool archive status file:///srv/archive"
)
def status(
    address: Address,
    *,
    topic: Topics = None,
    endpoint: Endpoint = "",
    region: Region = "",
    credentials_file: Credentials = "",
    as_json: options.Json = False,
) -> None:
    """Show the archived segments of each partition, and an estimate of their cost."""
    from respool.operate.archives.bucket_contents import read_contents

    found = _with_store(
        address, endpoint, region, credentials_file, lambda store: read_contents(store, topic or ())
    )
    if as_json:
        output.print_json({"topics": [_topic_fields(one) for one in found]})
        return
    rows = []
    for one in found:
        for part in one.partitions:
            manifest = part.manifest
            bounds: tuple[object, ...] = ("-", "-", 0, 0)
            if manifest is not None:
                bounds = (
                    manifest.first_offset or 0,
                    manifest.archived_end or 0,
                    len(manifest.segments),
                    manifest.log_bytes,
                )
            rows.append((one.keys.topic, part.partition, *bounds, part.problem or "-"))
    columns = output.Headings(
        "topic",
        "partition",
        "first",
        "end",
        "segments",
        "bytes",
        "problem",
        numbers=("partition", "first", "end", "segments", "bytes"),
    )
    output.print_rows(columns, rows)
    total = sum(
        part.manifest.log_bytes
        for one in found
        for part in one.partitions
        if part.manifest is not None
    )
    dollars = total / 2**30 * DOLLARS_PER_GIB_MONTH
    output.note(f"{total:,} bytes; at S3 Standard's list price about ${dollars:,.2f} a month")


@app.command(epilog="Examples:\n  respool archive verify file:///srv/archive")
def verify(
    address: Address,
    *,
    topic: Topics = None,
    endpoint: Endpoint = "",
    region: Region = "",
    credentials_file: Credentials = "",
) -> None:
    """Read all objects and verify every checksum; report damaged and missing ones."""
    from respool.model.archiving.archive_errors import ArchiveCorrupt
    from respool.operate.archives.archived_segments import verify_segment
    from respool.operate.archives.bucket_contents import read_contents

    async def check(store: "ObjectStore") -> tuple[int, list[str]]:
        count, problems = 0, []
        for one in await read_contents(store, topic or ()):
            for part in one.partitions:
                if part.manifest is None:
                    problems.append(part.problem)
                    continue
                for segment in part.manifest.segments:
                    count += 1
                    try:
                        await verify_segment(store, segment)
                    except ArchiveCorrupt as error:
                        problems.append(str(error))
        return count, problems

    count, problems = _with_store(address, endpoint, region, credentials_file, check)
    for problem in problems:
        output.print_line(problem)
    output.note(f"{counted(count, 'segment')} verified, {counted(len(problems), 'problem')}")
    if problems:
        raise typer.Exit(ExitCode.FAILED)


@app.command(
    epilog="Examples:\n  respool archive get file:///srv/archive --topic rides --to ./rides-0"
)
def get(
    address: Address,
    *,
    topic: Annotated[
        str,
        typer.Option(
            "--topic", metavar="TOPIC", parser=options.topic_name, help="The topic to read."
        ),
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="FOLDER", help="Folder to write the files to.")
    ],
    partition: Annotated[
        int, typer.Option("--partition", metavar="N", min=0, help="The partition.")
    ] = 0,
    endpoint: Endpoint = "",
    region: Region = "",
    credentials_file: Credentials = "",
) -> None:
    """Write a partition's archived segments to .log files, verified; respool log dump reads them."""
    from respool.operate.archives.archived_segments import download_segment
    from respool.operate.archives.bucket_contents import read_contents

    async def download(store: "ObjectStore") -> int:
        to.mkdir(parents=True, exist_ok=True)
        count = 0
        for one in await read_contents(store, (topic,)):
            for part in one.partitions:
                if part.partition == partition and part.manifest is not None:
                    for segment in part.manifest.segments:
                        await download_segment(store, segment, to)
                        count += 1
        return count

    count = _with_store(address, endpoint, region, credentials_file, download)
    output.note(f"{counted(count, 'segment')} in {to}")


@app.command(
    epilog="Examples:\n  respool archive restore file:///srv/archive --to ./restored-data --take-over"
)
def restore(
    address: Address,
    *,
    to: Annotated[
        Path,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="The data folder to create; it must not exist or be empty.",
        ),
    ],
    broker_id: Annotated[
        int, typer.Option("--broker-id", metavar="N", min=0, help="The id of the restored broker.")
    ] = 1,
    take_over: Annotated[
        bool,
        options.flag(
            "--take-over",
            text="Make the new cluster the archive's owner: the cluster that wrote it is gone for good.",
        ),
    ] = False,
    endpoint: Endpoint = "",
    region: Region = "",
    credentials_file: Credentials = "",
) -> None:
    """Create the data folder of a single broker from the archive: topics, settings, views, records."""
    from respool.drivers.system_sources import SystemClock, SystemRandomSource
    from respool.model.ids import BrokerId
    from respool.operate.archives.restoring import restore as restore_folder

    topics = _with_store(
        address,
        endpoint,
        region,
        credentials_file,
        lambda store: restore_folder(
            store,
            to,
            broker_id=BrokerId(broker_id),
            take_over=take_over,
            clock=SystemClock(),
            rng=SystemRandomSource(),
        ),
    )
    for one in topics:
        for part in one.partitions:
            output.print_line(f"{part.name}\t{part.log_start}\t{part.end}")
    output.note(
        f"restored {counted(len(topics), 'topic')}; start it with: respool serve --data {to} --set archive={address}"
    )


@app.command(epilog="Examples:\n  respool archive collect file:///srv/archive --older-than 7d")
def collect(
    address: Address,
    *,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="Only objects older than this, by the store's clock; must exceed the duration of any upload.",
        ),
    ] = "24h",
    delete: Annotated[
        bool, options.flag("--delete", text="Delete the objects instead of only listing them.")
    ] = False,
    endpoint: Endpoint = "",
    region: Region = "",
    credentials_file: Credentials = "",
) -> None:
    """List objects that no manifest refers to, such as those of interrupted uploads; with --delete, delete them."""
    from uuid import uuid4

    from respool.operate.archives.orphans import delete_orphans, find_orphans

    older_than_ms = options.duration_ms(older_than, option="--older-than")

    async def run(store: "ObjectStore") -> list[str]:
        orphans = await find_orphans(store, older_than_ms=older_than_ms, probe_id=uuid4())
        if delete:
            await delete_orphans(store, orphans)
        return [one.key for one in orphans]

    found = _with_store(address, endpoint, region, credentials_file, run)
    for key in found:
        output.print_line(key)
    done = "deleted" if delete else "found; delete them with --delete"
    output.note(f"{counted(len(found), 'object')} {done}")


def _topic_fields(topic: "StoredTopic") -> dict[str, object]:
    partitions: list[dict[str, object]] = []
    for one in topic.partitions:
        manifest = one.manifest
        partitions.append(
            {
                "partition": one.partition,
                "first_offset": None if manifest is None else manifest.first_offset or 0,
                "end_offset": None if manifest is None else manifest.archived_end or 0,
                "segment_count": None if manifest is None else len(manifest.segments),
                "bytes": None if manifest is None else manifest.log_bytes,
                "message": one.problem or None,
            }
        )
    return {
        "topic": topic.keys.topic,
        "topic_id": topic.keys.topic_id.hex,
        "partitions": partitions,
    }


def _with_store(
    address: str,
    endpoint: str,
    region: str,
    credentials_file: str,
    work: "Callable[[ObjectStore], Awaitable[T]]",
) -> T:
    import asyncio

    from respool.broker.archive.ownership import newest_owner
    from respool.model.archiving.archive_errors import (
        ArchiveCorrupt,
        ArchiveRefused,
        ArchiveUnavailable,
    )
    from respool.object_stores.open_store import open_store, read_options

    async def run() -> T:
        store = open_store(
            address, endpoint=endpoint, region=region, options=read_options(credentials_file)
        )
        try:
            # A mistyped address is an empty store, in which nothing is damaged or missing.
            if (await newest_owner(store))[0] is None:
                raise NotFound(
                    f"there is no archive at {address}",
                    hint="a cluster that archives there writes its id first; look at the setting archive",
                )
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except ArchiveRefused as error:
        raise UsageError(str(error)) from error
    except ArchiveUnavailable as error:
        raise Unreachable(str(error)) from error
    except ArchiveCorrupt as error:
        raise OperatorError(str(error)) from error
