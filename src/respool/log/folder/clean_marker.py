"""The marker of a clean stop: `.kafka_cleanshutdown`, as Kafka writes it, with the run of a cluster's broker.

It exists only while every log is synced to its end and the recovery points say so.
"""

import json
from uuid import UUID

from respool.log.folder.partition_folders import ROOT
from respool.ports.disk import Disk

CLEAN_MARKER = ".kafka_cleanshutdown"
# Kafka reads a broker epoch here; -1 means none.
_VERSION = "0"


class CleanMarker:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    @property
    def exists(self) -> bool:
        return self._disk.exists(CLEAN_MARKER)

    @property
    def run(self) -> UUID | None:
        """The run that stopped cleanly; None if the marker has none."""
        try:
            return UUID(hex=json.loads(self._disk.read_file(CLEAN_MARKER) or b"")["run"])
        except (ValueError, KeyError, TypeError):
            return None

    def write(self, run: UUID | None) -> None:
        """Call it last: after the logs and the checkpoints."""
        marker = {"version": _VERSION, "broker_epoch": "-1"}
        if run is not None:
            marker["run"] = run.hex
        content = json.dumps(marker, separators=(",", ":")).encode()
        self._disk.replace_file(CLEAN_MARKER, content)

    def remove(self) -> None:
        """Durable when this returns, also if an earlier removal was interrupted."""
        self._disk.delete(CLEAN_MARKER)
        self._disk.sync_folder(ROOT)
