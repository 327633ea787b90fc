"""`respool group reset`: move a group's committed offsets to another position in its topics."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.output import confirm
from respool.model.operator_errors import OperatorError, UsageError
from respool.model.quantities import counted
from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest

if TYPE_CHECKING:
    from respool.operate.cluster_admin import ClusterAdmin
    from respool.operate.offset_moves import OffsetMove, Target

EPILOG = (
    "Without --topic, every partition of the topics the group has committed in is moved, also where it has committed "
    "nothing. An offset that the topic no longer has becomes the nearest one that it has.\n\n"
    "Examples:\n"
    "  respool group reset billing --to-time '3 days ago' --dry-run\n"
    "  respool group reset billing --to-time '2026-11-12 08:00' --topic rides --yes\n"
    "  respool group reset billing --shift-by -100 --topic rides:0,1 --yes\n"
    "  respool group reset billing --to-earliest --force --yes"
)


@to_broker
def reset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The group.", show_default=False)],
    *,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,...]",
            help="Only this topic, or these partitions of it; may be repeated.",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first message of that time or later: '3 days ago', '2026-11-12 08:00'.",
        ),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="To this offset, in every partition.")
    ] = None,
    to_earliest: Annotated[
        bool, options.flag("--to-earliest", text="To the first message there is.")
    ] = False,
    to_latest: Annotated[
        bool, options.flag("--to-latest", text="To the end: only what comes from now on.")
    ] = False,
    shift_by: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Back (-N) or forward (N) by this many offsets in each partition."
        ),
    ] = None,
    dry_run: Annotated[
        bool, options.flag("--dry-run", text="Show what would change, and change nothing.")
    ] = False,
    force: Annotated[
        bool,
        options.flag(
            "--force",
            text="Also with members: they are removed, rejoin by themselves and resume at the new offsets.",
        ),
    ] = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Reset a group's offsets: to a time, an offset, the start or the end."""
    target = parse_target(
        to_time=to_time,
        to_offset=to_offset,
        to_earliest=to_earliest,
        to_latest=to_latest,
        shift_by=shift_by,
        now=datetime.now(UTC),
    )
    wanted = options.topics_and_partitions(topics or (), option="--topic")

    from respool.operate.group_operations import GroupOperations
    from respool.operate.offset_reset import GroupIsLive, member_count, plan_reset

    admin = connection.connect()
    groups = GroupOperations(admin.cluster)
    group = groups.find(name) if wanted else groups.get(name)
    committed = groups.committed(name) if group is not None else {}
    plan = plan_reset(admin, target, wanted=wanted, committed=committed, name=name)
    for (topic, number), why in plan.left_out.items():
        output.note(f"{topic}/{number} is left out: {why}")
    moves = plan.moves
    if not moves:
        raise OperatorError(f"there is no partition to reset {name} in")
    _show(name, target, moves, dry_run=dry_run, as_json=as_json)
    is_live = group is not None and bool(group.members)
    if dry_run:
        if is_live and group is not None:
            output.note(f"{member_count(group)} now, so it needs --force, or that they are stopped")
        return
    changing = [move for move in moves if move.changes]
    if not changing:
        output.note(f"{name} is there already; nothing changed")
        return
    if is_live and group is not None and not force:
        raise GroupIsLive(group)
    if not yes:
        sent_out = " and remove its members for a moment" if is_live else ""
        confirm(
            f"Move {name} in {counted(len(changing), 'partition')}{sent_out}?",
            why=f"this moves {name}",
            hint="add --yes when you are sure, or look first with --dry-run",
        )
    fenced = _carry_out(admin, name, target, changing, force=force)
    if not as_json:
        output.note(
            f"{name} was moved in {counted(len(changing), 'partition')}"
            + (f"; {counted(fenced, 'member')} removed, to rejoin by themselves" if fenced else "")
        )


def parse_target(
    *,
    to_time: str | None,
    to_offset: int | None,
    to_earliest: bool,
    to_latest: bool,
    shift_by: int | None,
    now: datetime,
) -> "Target":
    """
    Raises:
        UsageError: no target or several are given, or the time is invalid.
    """
    from respool.operate.offset_moves import ShiftBy

    given = [to_time is not None, to_offset is not None, to_earliest, to_latest]
    if sum([*given, shift_by is not None]) != 1:
        raise UsageError(
            "give exactly one of --to-time, --to-offset, --to-earliest, --to-latest or --shift-by"
        )
    if to_time is not None:
        return AtTime(options.time_ms(to_time, option="--to-time", now=now))
    if to_offset is not None:
        return AtOffset(to_offset)
    if shift_by is not None:
        return ShiftBy(shift_by)
    return Earliest() if to_earliest else Latest()


def _show(
    name: str, target: "Target", moves: "Sequence[OffsetMove]", *, dry_run: bool, as_json: bool
) -> None:
    from respool.operate.offset_moves import target_text

    replays = sum(move.replays for move in moves)
    skips = sum(move.skips for move in moves)
    if as_json:
        output.print_json(
            {
                "group": name,
                "dry_run": dry_run,
                "replays": replays,
                "skips": skips,
                "partitions": [move.to_document() for move in moves],
            }
        )
        return
    columns = ("topic", "partition", "from", "to", "replays", "skips")
    rows = [
        (each.topic, each.partition, each.committed, each.target, each.replays, each.skips)
        for each in moves
    ]
    output.print_rows(output.Headings(*columns, numbers=columns[1:]), rows)
    for move in moves:
        if move.is_clamped:
            output.note(
                f"{move.topic}/{move.partition} holds offsets {move.held.start} to {move.held.end}, "
                f"not {move.asked}: {move.target} instead"
            )
    changes = [f"replays {counted(replays, 'message')}"] if replays or not skips else []
    changes += [f"skips {counted(skips, 'message')}"] if skips else []
    new = [move for move in moves if move.committed is None]
    if new:
        ahead = counted(sum(move.reads for move in new), "message")
        where = counted(len(new), "partition")
        changes.append(f"{ahead} to read in {where} where it had committed nothing")
    output.note(
        f"{name} {target_text(target)}: {', '.join(changes)}"
        + ("; nothing was changed" if dry_run else "")
    )


def _carry_out(
    admin: "ClusterAdmin",
    name: str,
    target: "Target",
    moves: "Sequence[OffsetMove]",
    *,
    force: bool,
) -> int:
    """Record the reset in the audit log, carry it out, record the outcome. Returns the number of removed members."""
    from respool.client.kafka.groups import OffsetAndMetadata
    from respool.operate.group_operations import format_places
    from respool.operate.offset_moves import target_text
    from respool.operate.offset_reset import set_offsets
    from respool.replay.audit import DONE, FAILED, AuditEntry, AuditLog

    places = {move.place: OffsetAndMetadata(offset=move.target) for move in moves}
    audit = AuditLog(admin.cluster)
    entry = AuditEntry.begin(
        kind="reset",
        source=f"group {name}",
        target=format_places(move.place for move in moves),
        from_text=_offsets(move.committed for move in moves),
        to_text=f"{_offsets(move.target for move in moves)} ({target_text(target)})",
        messages=sum(move.replays for move in moves),
        details={
            "group": name,
            "force": force,
            "partitions": [move.to_document() for move in moves],
        },
    )
    audit.write(entry)
    try:
        fenced = set_offsets(admin, name, places, force=force, who=entry.who)
    except OperatorError as error:
        audit.write(entry.updated(state=FAILED, outcome=error.message))
        raise
    outcome = f"{counted(fenced, 'member')} removed" if fenced else "the group was empty"
    audit.write(entry.updated(state=DONE, outcome=outcome))
    return fenced


def _offsets(offsets: Iterable[int | None]) -> str:
    """`12`, or `3..90` for several offsets, short enough for one column."""
    known = sorted({each for each in offsets if each is not None})
    if not known:
        return "nothing"
    return str(known[0]) if len(known) == 1 else f"{known[0]}..{known[-1]}"
