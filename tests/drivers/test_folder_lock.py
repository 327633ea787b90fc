import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from respool.drivers.folder_lock import FolderLock
from respool.model.errors import DataFolderInUse, DiskFailed


def test_a_held_folder_is_refused_and_the_holder_named(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    held = FolderLock(folder)
    with pytest.raises(DataFolderInUse, match=rf"{folder} is in use by process {os.getpid()}"):
        FolderLock(folder)
    held.release()
    with FolderLock(folder), pytest.raises(DataFolderInUse):
        FolderLock(folder)
    FolderLock(folder).release()


def test_a_folder_that_may_not_be_written_to_is_named_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DiskFailed, match=rf"{tmp_path} is not writable: .*--data"):
        FolderLock(str(tmp_path))


def test_a_killed_process_no_longer_holds_its_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    code = (
        "import sys; from respool.drivers.folder_lock import FolderLock\n"
        "lock = FolderLock(sys.argv[1]); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(DataFolderInUse, match=f"process {other.pid}"):
            FolderLock(folder)
        other.kill()
    FolderLock(folder).release()


def test_a_holder_that_left_no_number_is_just_another_process(tmp_path: Path) -> None:
    held = FolderLock(str(tmp_path))
    (tmp_path / ".lock").write_bytes(b"")
    with pytest.raises(DataFolderInUse, match="another process"):
        FolderLock(str(tmp_path))
    held.release()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(DiskFailed):
        FolderLock(str(tmp_path / "data"))
