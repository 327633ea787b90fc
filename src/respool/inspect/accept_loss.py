"""Accept that a partition has lost records: show the loss, and let the broker open the partition without them."""

from collections.abc import Callable
from pathlib import Path

from respool.drivers.folder_lock import FolderLock
from respool.drivers.local_disk import LocalDisk
from respool.log.folder.accepted_loss import AcceptedLoss, LogLoss
from respool.log.folder.folder_identity import IDENTITY_NAME
from respool.log.partition_folder import parse_folder_name
from respool.model.errors import CheckpointDamaged, DataFolderInUse, StorageError
from respool.model.operator_errors import NotFound, OperatorError, UsageError


def accept_loss(data: Path, partition: str, confirm: Callable[[LogLoss], None]) -> LogLoss:
    """Accept the loss, if there is any; `confirm` gets it first, and raises to refuse.

    Raises:
        UsageError, NotFound: the partition's name is invalid, or there is no such folder or partition.
        OperatorError: the broker is running, or a checkpoint is damaged.
    """
    name = parse_folder_name(partition)
    if name is None:
        raise UsageError(
            f"{partition!r} is no partition", hint="give its folder's name, such as rides-0"
        )
    if not (data / IDENTITY_NAME).is_file():
        raise NotFound(
            f"{str(data)!r} is not a data folder: it has no {IDENTITY_NAME}",
            hint="give the folder that the broker has as --data",
        )
    try:
        with FolderLock(str(data)):
            lost = AcceptedLoss(LocalDisk(str(data)), name)
            if not lost.is_known:
                raise NotFound(f"there is no partition {partition} in {str(data)!r}")
            loss = lost.find()
            confirm(loss)
            if loss.offsets_lost:
                lost.accept(loss)
            return loss
    except DataFolderInUse as error:
        raise OperatorError(str(error), hint="stop the broker first") from error
    except CheckpointDamaged as error:
        hint = f"respool log verify {data} names it and says what to do"
        raise OperatorError(str(error), hint=hint) from error
    except StorageError as error:
        raise OperatorError(str(error)) from error
