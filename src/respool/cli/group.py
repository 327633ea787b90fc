"""`respool group`: list, describe, watch, reset and delete consumer groups."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from respool.cli import group_reset, options, output
from respool.cli.connection_options import BrokerConnection, to_broker
from respool.cli.exit_codes import ExitCode
from respool.cli.interrupts import CtrlC, noticing_ctrl_c
from respool.cli.output import confirm
from respool.model.operator_errors import OperatorError
from respool.model.quantities import counted

if TYPE_CHECKING:
    from respool.client.kafka.groups import GroupDescription
    from respool.operate.cluster_admin import ClusterAdmin
    from respool.operate.group_operations import GroupOperations, PartitionLag

app = typer.Typer(no_args_is_help=True, help="List, describe, reset and delete consumer groups.")
app.command("reset", epilog=group_reset.EPILOG)(group_reset.reset)

WATCH_SECONDS = 2.0
CLEAR_SCREEN = "\x1b[2J\x1b[H"

Name = Annotated[str, typer.Argument(metavar="NAME", help="The group.", show_default=False)]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="The groups.", show_default=False)
]


@app.command(
    "list",
    epilog="Piped, the columns are separated by tabs.\n\n"
    "Examples:\n  respool group list --state Stable\n  respool group list | cut -f1",
)
@to_broker
def list_groups(
    state: Annotated[
        str | None,
        typer.Option(metavar="STATE", help="Only groups in this state, such as Stable or Empty."),
    ] = None,
    as_json: options.Json = False,
    *,
    connection: BrokerConnection,
) -> None:
    """List groups: name, state and protocol."""
    from respool.operate.group_operations import GroupOperations, state_named

    wanted = None if state is None else state_named(state)
    listing = GroupOperations(connection.connect().cluster).list()
    groups = [info for info in listing.groups if wanted in (None, info.state)]
    if as_json:
        output.print_json(
            {
                "groups": [
                    {"group": each.name, "state": each.state, "type": each.type} for each in groups
                ]
            }
        )
    else:
        output.print_rows(
            output.Headings("group", "state", "type"),
            [(each.name, each.state, each.type) for each in groups],
        )
    # The known groups are printed; an incomplete list is still an error.
    listing.check()
    if not groups and not as_json:
        output.note("no groups" if state is None else f"no groups in state {wanted}")


@app.command(epilog="Example:\n  respool group describe billing --json | jq .members")
@to_broker
def describe(
    name: Name,
    *,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Show a group: its state, its members with their partitions, and its offset in each partition."""
    from respool.operate.group_operations import GroupOperations

    admin = connection.connect()
    groups = GroupOperations(admin.cluster)
    group = groups.get(name)
    lags = _lags(admin, groups, group)
    if as_json:
        output.print_json(_as_document(group, lags))
    else:
        _print_description(group, lags)


@app.command(
    epilog="Examples:\n  respool group lag\n  respool group lag billing\n  respool group lag billing pricing --watch"
)
@to_broker
def lag(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="The groups.", show_default="all"),
    ] = None,
    *,
    watch: Annotated[
        bool, options.flag("--watch", "-w", text="Show it again every two seconds, until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, options.flag("--json", text="Print JSON, for programs; one line each time.")
    ] = False,
    connection: BrokerConnection,
) -> None:
    """Show the lag of groups, per partition and in total."""
    from respool.operate.group_operations import GroupOperations, KnownGroups

    admin = connection.connect()
    groups = GroupOperations(admin.cluster)
    with noticing_ctrl_c() as ctrl_c:
        while True:
            listing = KnownGroups(groups=[], gaps=[]) if names else groups.list()
            wanted = names or listing.names
            # A listed group exists; looking it up again would send a request to every broker for each group.
            describe = groups.get if names else groups.describe
            found = {name: _lags(admin, groups, describe(name)) for name in dict.fromkeys(wanted)}
            if watch and output.is_terminal() and not as_json:
                output.print_line(CLEAR_SCREEN + time.strftime("%H:%M:%S"))
            _print_lag(found, as_json=as_json)
            sys.stdout.flush()
            if not watch:
                listing.check()
                return
            for why in listing.gaps:
                output.note(why)
            _wait(WATCH_SECONDS, ctrl_c)
            if ctrl_c.pressed:
                raise typer.Exit(ExitCode.INTERRUPTED)


@app.command(epilog="Example:\n  respool group delete billing --yes")
@to_broker
def delete(
    names: Names,
    *,
    yes: options.Yes = False,
    as_json: options.Json = False,
    connection: BrokerConnection,
) -> None:
    """Delete groups and their committed offsets; messages are not deleted. Groups with members are refused."""
    from respool.operate.group_operations import GroupOperations

    groups = GroupOperations(connection.connect().cluster)
    found = [groups.get(name) for name in dict.fromkeys(names)]
    for group in found:
        if group.members:
            raise OperatorError(
                f"group {group.name} has {counted(len(group.members), 'member')} "
                f"({', '.join(member.client_id for member in group.members)}), so it is not deleted",
                hint="stop its consumers first",
            )
    if not yes:
        confirm(
            f"Delete the committed offsets of {', '.join(group.name for group in found)}?",
            why="deleting a group deletes its committed offsets",
        )
    for group in found:
        groups.delete(group.name)
        if not as_json:
            output.note(f"deleted {group.name}")
    if as_json:
        output.print_json({"groups": [{"group": group.name, "deleted": True} for group in found]})


def _lags(
    admin: "ClusterAdmin", groups: "GroupOperations", group: "GroupDescription"
) -> "list[PartitionLag]":
    from respool.operate.group_operations import lags_of, owners_of

    committed = groups.committed(group.name)
    named = {topic for topic, _ in (*committed, *owners_of(group))}
    known = admin.topics(named=named)
    topics = [known[name] for name in sorted(named) if name in known]
    # Includes partitions without a committed offset: the group may have to read all of their messages.
    places = [(topic.name, number) for topic in topics for number in topic.leaders]
    # Up to the log end: a read_uncommitted group may be beyond the last stable offset.
    ranges = admin.ranges(topics, isolation="read_uncommitted")
    return lags_of(group, committed, ranges, places=places)


def _print_lag(found: "dict[str, list[PartitionLag]]", *, as_json: bool) -> None:
    from respool.operate.group_operations import total_lag

    if as_json:
        document = [
            {"group": name, "lag": total_lag(lags), "partitions": list(map(_lag_document, lags))}
            for name, lags in found.items()
        ]
        output.print_line(output.json_line({"groups": document}))
        return
    names = ("group", "topic", "partition", "committed", "end", "lag")
    rows = [
        (name, each.topic, each.partition, each.committed, _end(each), each.lag)
        for name, lags in found.items()
        for each in lags
    ]
    output.print_rows(output.Headings(*names, numbers=names[2:]), rows)
    if not found:
        output.note("no groups")
    for name, lags in found.items():
        output.note(f"{name}: {_lag_in_words(lags)}" if lags else f"{name} has committed nothing")


def _lag_in_words(lags: "Sequence[PartitionLag]") -> str:
    from respool.operate.group_operations import total_lag

    words = f"{counted(total_lag(lags), 'message')} to read"
    lost = sum(each.lost for each in lags)
    if lost:
        words += f"; {lost:,} {'was' if lost == 1 else 'were'} deleted before it read them"
    untouched = sum(each.committed is None for each in lags)
    if untouched:
        words += f"; nothing committed in {counted(untouched, 'partition')}"
    return words


def _print_description(group: "GroupDescription", lags: "Sequence[PartitionLag]") -> None:
    from respool.operate.group_operations import format_places

    member_rows = [
        (
            each.client_id,
            each.host,
            each.instance_id,
            format_places(each.partitions),
            each.member_id,
        )
        for each in group.members
    ]
    lag_rows = [
        (
            each.topic, each.partition, each.committed, _end(each), each.lag, each.owner,
            each.metadata or None,
        )
        for each in lags
    ]  # fmt: skip
    if not output.is_terminal():
        # All lines have the same shape: the group, the kind of line, then its fields.
        state = (group.name, "state", group.state, group.type, group.assignor)
        output.print_rows(output.Headings(), [state])
        output.print_rows(output.Headings(), [(group.name, "member", *row) for row in member_rows])
        output.print_rows(output.Headings(), [(group.name, "partition", *row) for row in lag_rows])
        return
    output.print_heading(f"group {group.name}")
    protocol = f"{group.type} protocol" + (f", {group.assignor}" if group.assignor else "")
    output.print_line(f"{group.state}; {protocol}; {counted(len(group.members), 'member')}")
    if member_rows:
        member_columns = output.Headings("client id", "host", "instance", "reads", "member id")
        output.print_rows(member_columns, member_rows)
    if lag_rows:
        columns = ("topic", "partition", "committed", "end", "lag", "read by", "metadata")
        output.print_rows(output.Headings(*columns, numbers=columns[1:5]), lag_rows)


def _as_document(group: "GroupDescription", lags: "Sequence[PartitionLag]") -> dict[str, object]:
    from respool.operate.group_operations import total_lag

    return {
        "group": group.name,
        "state": group.state,
        "type": group.type,
        "assignor": group.assignor or None,
        "lag": total_lag(lags),
        "members": [
            {
                "client_id": each.client_id,
                "host": each.host,
                "instance_id": each.instance_id,
                "member_id": each.member_id,
                "partitions": [
                    {"topic": topic, "partition": number} for topic, number in each.partitions
                ],
            }
            for each in group.members
        ],
        "partitions": [_lag_document(each) for each in lags],
    }


def _lag_document(each: "PartitionLag") -> dict[str, object]:
    return {
        "topic": each.topic,
        "partition": each.partition,
        "committed": each.committed,
        "start_offset": each.held.start if each.held else None,
        "end_offset": _end(each),
        "lag": each.lag,
        "owner": each.owner,
        "metadata": each.metadata,
    }


def _end(each: "PartitionLag") -> int | None:
    return each.held.end if each.held else None


def _wait(seconds: float, ctrl_c: CtrlC) -> None:
    """Sleep in short steps, because a sleep resumes after a signal."""
    until = time.monotonic() + seconds
    while not ctrl_c.pressed and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 0.1))
