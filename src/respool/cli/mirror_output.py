"""Tells how a mirror is doing: a table that lives on a terminal, one line each interval elsewhere, or JSON lines."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from respool.cli import output
from respool.mirror.partition_copy import PartitionCopy, State

if TYPE_CHECKING:
    from rich.console import Group

    from respool.mirror.copier import MirrorCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    topic: str
    partitions: int
    # The sum of the partitions' ends in the copy.
    end: int
    lag: int
    state: str
    why: str


class MirrorReport:
    def __init__(self, copy: "MirrorCopy", *, as_json: bool) -> None:
        # Of how many groups the offsets are copied; None: of none, or nobody has looked yet.
        self.group_count: int | None = None
        self._copy = copy
        self._as_json = as_json
        self._live: Any = None
        # Of the last report: when, and how much was copied by then.
        self._before = (0.0, 0)
        self._rate = 0.0

    @contextmanager
    def shown(self) -> Iterator[None]:
        """While it lasts a table stands on the terminal, if there is one."""
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

    def tell(self, now: float) -> None:
        """How it is now; the rate is since the last time."""
        then, copied = self._before
        if then:
            self._rate = (self._copy.bytes_copied - copied) / max(now - then, 0.001)
        self._before = now, self._copy.bytes_copied
        if self._as_json:
            output.print_line(output.json_line(self.document()))
        elif self._live is not None:
            self._live.update(self._table(), refresh=True)
        else:
            output.note(self._line())

    def note(self, text: str, *, style: str = "yellow") -> None:
        if self._live is None:
            output.note(text, style=style)
            return
        from rich.text import Text

        self._live.console.print(Text(output.printable(text), style=style), soft_wrap=True)

    def document(self) -> dict[str, object]:
        copy = self._copy
        return {
            "bytes_copied": copy.bytes_copied,
            "offsets_copied": copy.offsets_copied,
            "bytes_per_second": round(self._rate),
            "lag": sum(one.lag for one in copy.partitions.values()),
            "group_count": self.group_count,
            "topics": [
                {
                    "topic": row.topic,
                    "partition_count": row.partitions,
                    "lag": row.lag,
                    "state": row.state,
                    "message": row.why or None,
                }
                for row in self.rows()
            ],
        }

    def rows(self) -> list[TopicRow]:
        topics: dict[str, list[PartitionCopy]] = {}
        for one in self._copy.partitions.values():
            topics.setdefault(one.place[0], []).append(one)
        return [_row(name, copies) for name, copies in sorted(topics.items())]

    def _line(self) -> str:
        copy = self._copy
        rows = self.rows()
        lag = f"{sum(row.lag for row in rows):,} behind"
        if any(one.state is State.SEEKING for one in copy.partitions.values()):
            # How far these are is not known yet.
            lag = f"at least {lag}"
        text = (
            f"{output.counted(len(rows), 'topic')}, {output.counted(len(copy.partitions), 'partition')}: "
            f"{output.counted(copy.offsets_copied, 'offset')} copied, "
            f"{output.human_bytes(round(self._rate))}/s, {lag}{self._groups_in_words()}"
        )
        seeking = [row for row in rows if row.state == State.SEEKING]
        if begun := [row for row in seeking if not row.why]:
            text += f"; looking up where the copy of {output.counted(len(begun), 'topic')} ends, to go on there"
        if failed := [row for row in seeking if row.why]:
            text += f"; {output.counted(len(failed), 'topic')} to be tried again ({failed[0].why})"
        if stopped := [row for row in rows if row.state == State.STOPPED]:
            text += f"; {output.counted(len(stopped), 'topic')} stopped"
        return text

    def _groups_in_words(self) -> str:
        if self.group_count is None:
            return ""
        return f", offsets of {output.counted(self.group_count, 'group')}"

    def _table(self) -> "Group":
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        title = (
            f"{output.human_bytes(self._copy.bytes_copied)} copied, "
            f"{output.human_bytes(round(self._rate))}/s{self._groups_in_words()}. "
            "Ctrl-C stops; the next start goes on."
        )
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("topic", "state"):
            table.add_column(name)
        for name in ("partitions", "copied up to", "behind"):
            table.add_column(name, justify="right")
        for row in self.rows():
            state = f"{row.state}: {row.why}" if row.why else row.state
            cells = (row.topic, state, f"{row.partitions:,}", f"{row.end:,}", f"{row.lag:,}")
            table.add_row(*(Text(output.printable(cell)) for cell in cells))
        return Group(Text(title), table)


def _row(name: str, copies: list[PartitionCopy]) -> TopicRow:
    order = (State.STOPPED, State.SEEKING, State.COPYING)
    worst = min(copies, key=lambda one: order.index(one.state))
    return TopicRow(
        topic=name,
        partitions=len(copies),
        end=sum(max(0, one.target_end) for one in copies),
        lag=sum(one.lag for one in copies),
        state=worst.state.value,
        why=worst.why,
    )
