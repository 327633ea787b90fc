"""Prints the status of a mirror: a live table on a terminal, a line per interval elsewhere, or JSON lines."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from respool.cli import output
from respool.mirror.comparison import PartitionStatus
from respool.mirror.partition_copy import CopyState
from respool.mirror.progress import MirrorEvent, MirrorStatus, Severity
from respool.mirror.promotion import Promotion
from respool.model.quantities import counted, human_bytes

if TYPE_CHECKING:
    from rich.console import Group

_STYLES = {
    Severity.INFO: "",
    Severity.WARNING: "yellow",
    Severity.RECOVERED: "dim",
    Severity.ERROR: "bold red",
}


class MirrorOutput:
    """Events come from the mirror's thread, statuses from the command's."""

    def __init__(self, *, as_json: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._as_json = as_json
        self._clock = clock
        self._live: Any = None
        self._lock = threading.Lock()
        # The time of the last status, and the bytes copied by then.
        self._previous = (0.0, 0)
        self._bytes_per_second = 0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the live table, if standard error is a terminal."""
        if self._as_json or not output.is_error_terminal():
            yield
            return
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(stderr=True, highlight=False), auto_refresh=False) as self._live:
            yield
        self._live = None

    @property
    def is_live(self) -> bool:
        return self._live is not None

    def print_status(self, status: MirrorStatus) -> None:
        """Print a status, with the rate since the previous one."""
        now_s = self._clock()
        previous_s, bytes_before = self._previous
        if previous_s:
            seconds = max(now_s - previous_s, 0.001)
            self._bytes_per_second = round((status.bytes_copied - bytes_before) / seconds)
        self._previous = now_s, status.bytes_copied
        with self._lock:
            if self._as_json:
                output.print_line(output.json_line(self._document(status)))
            elif self._live is not None:
                self._live.update(self._table(status), refresh=True)
            else:
                output.note(self._line(status))

    def print_event(self, event: MirrorEvent) -> None:
        prefix = "error: " if event.severity is Severity.ERROR else ""
        with self._lock:
            self._note(prefix + event.message, style=_STYLES[event.severity])
            if event.hint:
                self._note(f"  {event.hint}", style="")

    def _note(self, text: str, *, style: str) -> None:
        if self._live is None:
            output.note(text, style=style)
            return
        from rich.text import Text

        self._live.console.print(Text(output.printable(text), style=style), soft_wrap=True)

    def _document(self, status: MirrorStatus) -> dict[str, object]:
        return {
            "bytes_copied": status.bytes_copied,
            "offsets_copied": status.offsets_copied,
            "bytes_per_second": self._bytes_per_second,
            "lag": status.lag,
            "group_count": status.group_count,
            "topics": [
                {
                    "topic": one.topic,
                    "partition_count": one.partition_count,
                    "lag": one.lag,
                    "state": one.state.value,
                    "message": one.why or None,
                }
                for one in status.topics
            ],
        }

    def _line(self, status: MirrorStatus) -> str:
        topics = status.topics
        lag = f"{status.lag:,} behind"
        seeking = [one for one in topics if one.state is CopyState.SEEKING]
        if seeking:
            # The lag of some partitions is not known yet.
            lag = f"at least {lag}"
        text = (
            f"{counted(len(topics), 'topic')}, {counted(status.partition_count, 'partition')}: "
            f"{counted(status.offsets_copied, 'offset')} copied, "
            f"{human_bytes(self._bytes_per_second)}/s, {lag}{_groups_text(status)}"
        )
        if starting := [one for one in seeking if not one.why]:
            text += f"; looking up the end of the copy of {counted(len(starting), 'topic')}"
        if failed := [one for one in seeking if one.why]:
            text += f"; retrying {counted(len(failed), 'topic')} ({failed[0].why})"
        if stopped := [one for one in topics if one.state is CopyState.STOPPED]:
            text += f"; {counted(len(stopped), 'topic')} stopped"
        return text

    def _table(self, status: MirrorStatus) -> "Group":
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        title = (
            f"{human_bytes(status.bytes_copied)} copied, "
            f"{human_bytes(self._bytes_per_second)}/s{_groups_text(status)}. "
            "Ctrl-C stops; the next start continues."
        )
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("topic", "state"):
            table.add_column(name)
        for name in ("partitions", "copied up to", "behind"):
            table.add_column(name, justify="right")
        for one in status.topics:
            state = f"{one.state}: {one.why}" if one.why else str(one.state)
            numbers = (f"{one.partition_count:,}", f"{one.end:,}", f"{one.lag:,}")
            table.add_row(*(Text(output.printable(cell)) for cell in (one.topic, state, *numbers)))
        return Group(Text(title), table)


def print_comparison(found: Sequence[PartitionStatus], *, as_json: bool) -> None:
    """Print the output of `respool mirror status`."""
    if as_json:
        output.print_json({"partitions": [{**asdict(one), "lag": one.lag} for one in found]})
        return
    columns = (
        "topic", "partition", "state", "source start", "source end", "copy start", "copy end", "behind",
    )  # fmt: skip
    rows = [
        (
            one.topic, one.partition, one.state, one.source_start, one.source_end, one.target_start,
            one.target_end, one.lag,
        )
        for one in found
    ]  # fmt: skip
    output.print_rows(output.Headings(*columns, numbers=(columns[1], *columns[3:])), rows)


def promotion_document(promotion: Promotion) -> dict[str, object]:
    return {
        "topic": promotion.topic,
        "was_mirror": promotion.was_mirror,
        "aborted": [
            {
                "partition": one.partition,
                "start_offset": one.start_offset,
                "producer_id": one.producer_id,
            }
            for one in promotion.aborted
        ],
    }


def _groups_text(status: MirrorStatus) -> str:
    if status.group_count is None:
        return ""
    return f", offsets of {counted(status.group_count, 'group')}"
