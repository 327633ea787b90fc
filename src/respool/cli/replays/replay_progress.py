"""What `respool replay` and `respool dlq replay` show while a replay into a topic runs, and when it ends."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from respool.cli import output
from respool.cli.interrupts import CtrlC, noticing_ctrl_c
from respool.model.quantities import counted
from respool.model.times import format_ms

if TYPE_CHECKING:
    from respool.replay.audit import AuditEntry
    from respool.replay.handle import Replay

# The interval of progress lines without a terminal.
NOTE_SECONDS = 10.0
PROGRESS_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedReplay:
    """How a replay ended that was not a failure."""

    # For --json.
    document: dict[str, object]
    is_interrupted: bool


def follow_replay(replay: "Replay", *, is_asked_for: bool) -> FollowedReplay:
    """Show the progress of a replay into a topic until it ends, and its outcome.

    With `is_asked_for`, the user gave its id and knows that it is resumed.
    """
    entry = replay.entry
    if replay.was_done:
        output.note(
            f"replay {entry.id} was done already, at {format_ms(entry.updated_ms)}: "
            f"{counted(entry.messages, 'message')} in {entry.target}; --again makes another copy"
        )
        return _followed(entry, seconds=0.0)
    if replay.is_resumed and not is_asked_for:
        output.note(
            f"continuing replay {entry.id}, begun {format_ms(entry.begun_ms)} by {entry.who}; "
            "--again starts a new one instead"
        )
    output.note(
        f"replay {entry.id}: {counted(replay.progress.total, 'message')} of {entry.source} from "
        f"{entry.from_text} to {entry.to_text}, into {entry.target}",
        style="dim",
    )
    began = datetime.now(UTC)
    with noticing_ctrl_c() as ctrl_c, replay:
        _show_progress(replay, ctrl_c)
        entry = replay.wait()
    copied = counted(entry.messages, "message")
    if replay.is_interrupted:
        output.note(
            f"replay {entry.id} was interrupted: {copied} in {entry.target}; started again with the same arguments, or "
            f"with: respool replay --resume {entry.id}, it continues"
        )
    else:
        output.note(f"replay {entry.id} is done: {copied} in {entry.target}")
    seconds = (datetime.now(UTC) - began).total_seconds()
    return _followed(entry, seconds=seconds, is_interrupted=replay.is_interrupted)


def _followed(
    entry: "AuditEntry", *, seconds: float, is_interrupted: bool = False
) -> FollowedReplay:
    document: dict[str, object] = {
        "id": entry.id,
        "state": entry.state,
        "messages": entry.messages,
        "into": entry.target,
        "seconds": round(seconds, 3),
    }
    return FollowedReplay(document=document, is_interrupted=is_interrupted)


def _show_progress(replay: "Replay", ctrl_c: CtrlC) -> None:
    """A bar with rate and remaining time on a terminal; elsewhere a line every few seconds."""
    entry = replay.entry
    title = f"{entry.source} → {entry.target}"
    shown, noted_at = 0, time.monotonic()
    with output.progress(title, total=replay.progress.total, unit="messages") as bar:
        while not replay.join(PROGRESS_SECONDS):
            if ctrl_c.pressed:
                replay.stop()
            now = replay.progress
            rate = f"{now.messages_per_second:,.0f}/s, {clock_text(now.seconds_left)} left"
            bar.advance(now.done - shown)
            shown = now.done
            bar.describe(f"{title}  {rate}")
            if not output.is_error_terminal() and time.monotonic() - noted_at >= NOTE_SECONDS:
                noted_at = time.monotonic()
                output.note(f"{title}: {now.done:,} of {now.total:,}, {rate}")
        bar.advance(replay.progress.done - shown)


def clock_text(seconds: float | None) -> str:
    """75 -> '1:15'; '?' if unknown."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
