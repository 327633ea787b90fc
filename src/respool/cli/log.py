"""`respool log`: look at and check the files of a log, offline, or go on without what is lost.

The work is in log_dump.py, log_verify.py and log_accept_loss.py.
"""

from pathlib import Path
from typing import Annotated

import typer

from respool.cli import options
from respool.cli.errors import ExitCode
from respool.model.operator_errors import NotFound

app = typer.Typer(no_args_is_help=True, help="Look at and check a log's files, without a broker.")


@app.command(
    epilog="FILE is a .log, .index, .timeindex, .txnindex or .snapshot file, or a checkpoint such as "
    "leader-epoch-checkpoint. Safe while a broker runs.\n\n"
    "Examples:\n"
    "  respool log dump respool-data/rides-0/00000000000000000000.log --records --limit 5\n"
    "  respool log dump respool-data/rides-0/*.timeindex"
)
def dump(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", show_default=False, help="The files to show.")
    ],
    records: Annotated[
        bool, options.flag("--records", text="Also the records inside the batches.")
    ] = False,
    from_offset: Annotated[
        int, typer.Option(min=0, metavar="N", help="Leave out what lies wholly before this offset.")
    ] = 0,
    limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Show at most N batches or entries of each file."),
    ] = None,
    as_json: Annotated[bool, options.flag("--json", text="One JSON object per line.")] = False,
) -> None:
    """Print the batches, records or entries in a log's files."""
    from respool.cli.log_dump import dump_files

    sound = dump_files(
        files, records=records, from_offset=from_offset, limit=limit, as_json=as_json
    )
    if not sound:
        raise typer.Exit(ExitCode.FAILED)


@app.command(
    epilog="PATH is a data folder, a partition's folder or a file. It ends with 1 when something is damaged. "
    "Safe while a broker runs: what is being written then shows as a note, not as damage.\n\n"
    "Examples:\n"
    "  respool log verify respool-data\n"
    "  respool log verify respool-data/rides-0 --json"
)
def verify(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", show_default=False, help="What to check.")
    ],
    as_json: Annotated[bool, options.flag("--json", text="Print the report as JSON.")] = False,
) -> None:
    """Check every checksum, that offsets increase, that the indexes are right and that nothing is missing."""
    for path in paths:
        if not path.exists():
            raise NotFound(f"there is no {str(path)!r}")
    from respool.cli.log_verify import verify_paths

    report = verify_paths(paths)
    report.tell(as_json=as_json)
    if report.damage:
        raise typer.Exit(ExitCode.FAILED)


@app.command(
    name="accept-loss",
    epilog="For a partition that is offline because its files are damaged or missing and cannot be brought back. "
    "The broker must be stopped. It shows what is left and what is given up, and asks; the next start cuts the damaged "
    "rest off. Bring back from a backup what you can first: what is given up is gone.\n\n"
    "Examples:\n"
    "  respool log accept-loss respool-data rides-0\n"
    "  respool log accept-loss respool-data rides-0 --yes",
)
def accept_loss(
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA_FOLDER", show_default=False, help="The broker's data folder."),
    ],
    partition: Annotated[
        str,
        typer.Argument(metavar="TOPIC-PARTITION", show_default=False, help="Such as rides-0."),
    ],
    yes: Annotated[bool, options.flag("--yes", text="Do not ask.")] = False,
) -> None:
    """Give up what a partition has lost, so that it serves what is left."""
    from respool.cli import log_accept_loss

    log_accept_loss.accept_loss(data, partition, yes=yes)
