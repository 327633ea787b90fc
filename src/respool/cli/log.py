"""`respool log`: dump and verify a log's files offline, or accept lost records."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.exit_codes import ExitCode
from respool.cli.output import confirm
from respool.model.operator_errors import NotFound
from respool.model.quantities import counted, human_bytes

if TYPE_CHECKING:
    from respool.inspect.verify import VerifyReport
    from respool.log.folder.accepted_loss import LogLoss

app = typer.Typer(no_args_is_help=True, help="Dump and verify a log's files, without a broker.")


@app.command(
    epilog="FILE is a .log, .index, .timeindex, .txnindex or .snapshot file, or a checkpoint such as "
    "leader-epoch-checkpoint. Safe while a broker runs.\n\n"
    "Examples:\n"
    "  respool log dump respool-data/rides-0/00000000000000000000.log --limit 5\n"
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
        int, typer.Option(min=0, metavar="N", help="Skip batches and entries before this offset.")
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
    epilog="PATH is a data folder, a partition's folder or a file. The exit code is 1 when something is damaged. "
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
    """Verify checksums, offsets and indexes, and that no records are missing."""
    for path in paths:
        if not path.exists():
            raise NotFound(f"there is no {str(path)!r}")
    from respool.inspect.verify import verify_paths

    report = verify_paths(paths, lambda total: output.progress("checking", total=total))
    _print_report(report, as_json=as_json)
    if report.damage:
        raise typer.Exit(ExitCode.FAILED)


@app.command(
    name="accept-loss",
    epilog="For a partition that is offline because its files are damaged or missing and cannot be restored. "
    "The broker must be stopped. It shows what is left and what is lost, and asks; the next start truncates the "
    "damaged rest. Restore what you can from a backup first: the loss is final.\n\n"
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
    """Accept that a partition has lost records, so that it serves the rest."""
    from respool.inspect.accept_loss import accept_loss

    loss = accept_loss(data, partition, lambda loss: _confirm_loss(loss, yes=yes))
    if not loss.offsets_lost:
        output.print_line("nothing that was on the disk is missing; nothing was changed")
        return
    output.print_line(
        f"accepted: {loss.name} continues at offset {loss.opens_at:,} when the broker starts on {data}"
    )


def _confirm_loss(loss: "LogLoss", *, yes: bool) -> None:
    for line in _described(loss):
        output.print_line(line)
    if loss.offsets_lost and not yes:
        confirm(
            f"Accept the loss of {counted(loss.offsets_lost, 'message')}?",
            why="these messages are lost for good",
            hint="add --yes when you are sure that they cannot be restored",
        )


def _described(loss: "LogLoss") -> list[str]:
    if loss.intact_end is None:
        left = "nothing, its folder " + ("has no .log" if loss.has_folder else "is missing")
    elif loss.intact_end <= loss.log_start:
        left = "no message"
    else:
        left = f"offsets {loss.log_start:,} to {loss.intact_end - 1:,}"
    lines = [f"{loss.name}", f"  was on the disk: up to offset {loss.recorded_end:,}"]
    lines.append(f"  what is left:    {left}")
    if loss.damage:
        lines.append(f"  what comes then: {loss.damage}")
    if loss.offsets_lost:
        first = loss.recorded_end - loss.offsets_lost
        lines.append(
            f"  lost:            offsets {first:,} to {loss.recorded_end - 1:,}, "
            f"up to {counted(loss.offsets_lost, 'message')}, and whatever came after"
        )
    return lines


def _print_report(report: "VerifyReport", *, as_json: bool) -> None:
    if as_json:
        output.print_json(_document(report))
        return
    for finding in report.findings:
        where = f"{finding.path}" + (
            f" at byte {finding.position}" if finding.position is not None else ""
        )
        output.print_line(f"{'damaged' if finding.is_damage else 'note'}: {where}: {finding.what}")
        output.print_line(f"  what to do: {finding.remedy}")
    damage = counted(len(report.damage), "damaged place") if report.damage else "no damage"
    counts = ", ".join(
        [
            counted(report.partitions, "partition"),
            counted(report.segments, "segment"),
            f"{report.batches:,} {'batch' if report.batches == 1 else 'batches'}",
            counted(report.records, "record"),
            human_bytes(report.bytes),
        ]
    )
    output.print_line(f"{damage}: {counts}")


def _document(report: "VerifyReport") -> dict[str, object]:
    return {
        "ok": not report.damage,
        "partition_count": report.partitions,
        "segment_count": report.segments,
        "batch_count": report.batches,
        "record_count": report.records,
        "bytes": report.bytes,
        "findings": [
            {
                "file": str(finding.path),
                "position": finding.position,
                "is_damage": finding.is_damage,
                "kind": finding.kind,
                "message": finding.what,
                "remedy": finding.remedy,
            }
            for finding in report.findings
        ],
    }
