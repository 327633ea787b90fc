"""Where the audit log goes: one event at a time, never waited for."""

from collections.abc import Mapping
from typing import Protocol


class AuditSink(Protocol):
    def write(self, event: Mapping[str, object]) -> None:
        """Write the event soon. It is lost, and counted, if events come faster than they are written."""
        ...
