"""The work of `respool log accept-loss`: show what a partition has lost, ask, and have the broker go on without it."""

import sys
from pathlib import Path

import typer

from respool.cli import output
from respool.cli.errors import ExitCode
from respool.drivers.folder_lock import FolderLock
from respool.drivers.local_disk import LocalDisk
from respool.log.folder.accepted_loss import AcceptedLoss, Loss
from respool.log.folder.folder_identity import IDENTITY_NAME
from respool.log.partition_folder import parse_folder_name
from respool.model.errors import CheckpointDamaged, DataFolderInUse, StorageError
from respool.model.operator_errors import NotFound, OperatorError, UsageError


def accept_loss(data: Path, partition: str, *, yes: bool) -> None:
    name = parse_folder_name(partition)
    if name is None:
        raise UsageError(
            f"{partition!r} is no partition", hint="give its folder's name, such as rides-0"
        )
    if not (data / IDENTITY_NAME).is_file():
        raise NotFound(
            f"{str(data)!r} is no data folder: it has no {IDENTITY_NAME}",
            hint="give the folder that the broker has as --data",
        )
    try:
        with FolderLock(str(data)):
            lost = AcceptedLoss(LocalDisk(str(data)), name)
            if not lost.is_known:
                raise NotFound(f"there is no partition {partition} in {str(data)!r}")
            _accept(lost, data, yes=yes)
    except DataFolderInUse as error:
        raise OperatorError(str(error), hint="stop the broker first") from error
    except CheckpointDamaged as error:
        hint = f"respool log verify {data} names it and says what to do"
        raise OperatorError(str(error), hint=hint) from error
    except StorageError as error:
        raise OperatorError(str(error)) from error


def _accept(lost: AcceptedLoss, data: Path, *, yes: bool) -> None:
    loss = lost.find()
    for line in _described(loss):
        output.print_line(line)
    if not loss.given_up:
        output.print_line("nothing that was on the disk is missing; nothing was changed")
        return
    _confirm(loss, yes=yes)
    lost.accept(loss)
    output.print_line(
        f"accepted: {loss.name} goes on at offset {loss.opens_at:,} when the broker starts on {data}"
    )


def _described(loss: Loss) -> list[str]:
    if loss.sound_end is None:
        left = "nothing, its folder " + ("has no .log" if loss.has_folder else "is missing")
    elif loss.sound_end <= loss.log_start:
        left = "no message"
    else:
        left = f"offsets {loss.log_start:,} to {loss.sound_end - 1:,}"
    lines = [f"{loss.name}", f"  was on the disk: up to offset {loss.recorded_end:,}"]
    lines.append(f"  what is left:    {left}")
    if loss.damage:
        lines.append(f"  what comes then: {loss.damage}")
    if loss.given_up:
        first = loss.recorded_end - loss.given_up
        lines.append(
            f"  given up:        offsets {first:,} to {loss.recorded_end - 1:,}, "
            f"up to {output.counted(loss.given_up, 'message')}, and whatever came after"
        )
    return lines


def _confirm(loss: Loss, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "this gives messages up for good, and there is no terminal to ask on",
            hint="add --yes when you are sure that they cannot be brought back",
        )
    if not typer.confirm(f"Give up {output.counted(loss.given_up, 'message')}?", err=True):
        output.note("nothing was changed")
        raise typer.Exit(ExitCode.FAILED)
