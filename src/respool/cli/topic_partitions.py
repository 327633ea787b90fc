"""`respool topic shrink` and `respool topic retire`: partitions taken away; and what `describe` shows of them."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from respool.cli import options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.output import confirm
from respool.model.quantities import human_bytes

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", parser=options.topic_name, help="The topic.", show_default=False
    ),
]
DryRun = Annotated[bool, options.flag("--dry-run", text="Only check whether it could be done.")]
Yes = Annotated[bool, options.flag("--yes", "-y", text="Do not ask.")]


@to_broker
def shrink(
    name: Name,
    *,
    to: Annotated[
        int,
        typer.Option(
            "--to",
            metavar="N",
            help="How many partitions take messages from then on: a divisor of the present number.",
        ),
    ],
    unkeyed: Annotated[
        bool,
        options.flag(
            "--unkeyed",
            text="Allow any smaller number: a key's new messages may go to another partition.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Give a topic fewer partitions: the others are read until their retention ends, and take no messages."""
    from respool.operate.topic_layouts import shrink_topic

    cluster = connection.connect()
    shrink_topic(cluster, name, to=to, is_unkeyed=unkeyed, is_dry_run=True)
    if not dry_run:
        if not yes:
            confirm(
                f"Seal the partitions of {name} from {to} on?",
                why="partitions are sealed for everybody who writes to the topic",
            )
        shrink_topic(cluster, name, to=to, is_unkeyed=unkeyed, on_aligning=output.note)
    if as_json:
        output.print_json({"topic": name, "active_partitions": to, "changed": not dry_run})
    else:
        output.note(f"{name} could be shrunk to {to}" if dry_run else f"shrank {name} to {to}")


@to_broker
def retire(
    name: Name,
    *,
    force: Annotated[
        bool,
        options.flag(
            "--force",
            text="Also with messages in them, which are deleted, or unread by groups.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Take a topic's sealed partitions away, once they are empty and all groups have read them."""
    from respool.operate.topic_layouts import retire_partitions

    cluster = connection.connect()
    retire_partitions(cluster, name, is_forced=force, is_dry_run=True)
    if not dry_run:
        if not yes:
            confirm(
                f"Take the sealed partitions of {name} away?",
                why="consumers that were assigned them by hand get an error",
            )
        retire_partitions(cluster, name, is_forced=force)
    if as_json:
        output.print_json({"topic": name, "changed": not dry_run})
    else:
        what = "could be retired" if dry_run else "are retired"
        output.note(f"the sealed partitions of {name} {what}")


def print_layout(name: str, layout: Mapping[str, Any] | None) -> None:
    """Print what is left in sealed partitions, and who has still to read it."""
    if layout is None:
        return
    sealed = [
        (
            one["partition"],
            one["heir"],
            one["sealed_end"],
            one["messages"],
            one["bytes"],
            None if one["groups_behind"] is None else ",".join(one["groups_behind"]),
        )
        for one in layout["sealed"]
    ]
    held = [(one["partition"], one["shown_end"]) for one in layout["held"]]
    if not output.is_terminal():
        output.print_rows(output.Headings(), [(name, "sealed", *row) for row in sealed])
        output.print_rows(output.Headings(), [(name, "held", *row) for row in held])
    else:
        _print_layout_for_people(layout, sealed, held)
    if layout["groups_unknown"]:
        output.note(f"{name}: not all groups are known: {layout['groups_unknown']}")


def _print_layout_for_people(
    layout: Mapping[str, Any], sealed: list[tuple[Any, ...]], held: list[tuple[Any, ...]]
) -> None:
    active = layout["active_partitions"]
    output.print_line(
        f"messages go to partitions 0 to {active - 1}"
        + ("; these are sealed:" if sealed else ", all of them")
    )
    if sealed:
        numbers = ("sealed", "heir", "sealed end", "messages", "bytes")
        shown = [
            (*row[:4], None if row[4] is None else human_bytes(row[4]), row[5]) for row in sealed
        ]
        output.print_rows(output.Headings(*numbers, "groups behind", numbers=numbers), shown)
    for number, end in held:
        output.print_line(
            f"partition {number} shows consumers nothing from offset {end} on, until all groups have read what the "
            "same keys got before, or respool.shrink.barrier.ms is over"
        )
