"""Run and print `respool cluster status`."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import typer

from respool.cli import output
from respool.cli.exit_codes import ExitCode
from respool.cluster.cluster_status import Awaited
from respool.model.internal_topics import is_internal
from respool.model.quantities import counted, part_of_bytes
from respool.operate.cluster_store import ClusterAddress, ClusterStore, run_on_cluster
from respool.operate.status import Document, read_status

LISTED_MAX = 20
WATCH_EVERY_S = 1.0
CLEAR_SCREEN = "\x1b[H\x1b[2J"


class StatusOptions(NamedTuple):
    as_json: bool
    check: bool
    watch: bool


def show_status(address: ClusterAddress, how: StatusOptions) -> None:
    async def work(cluster: ClusterStore) -> Document:
        if how.watch:
            await _watch(cluster, address, as_json=how.as_json)
        return await read_status(cluster)

    try:
        document = run_on_cluster(address, work)
    except KeyboardInterrupt:
        if how.watch:
            return
        raise
    try:
        _print(document, address, as_json=how.as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        if not how.check:
            raise
        # The reader closed the pipe early; the exit code must still report the result of the check.
        output.drop_what_is_left()
    if how.check and not document["is_well"]:
        raise typer.Exit(ExitCode.FAILED)


async def _watch(cluster: ClusterStore, address: ClusterAddress, *, as_json: bool) -> None:
    """Redraw on a terminal, or else print whenever the status has changed, until interrupted."""
    before: Document | None = None
    while True:
        document = await read_status(cluster)
        if as_json and document != before:
            output.print_line(output.json_line(document))
        elif document != before:
            if output.is_terminal():
                sys.stdout.write(CLEAR_SCREEN)
            _print(document, address, as_json=False)
        sys.stdout.flush()
        before = document
        await asyncio.sleep(WATCH_EVERY_S)


BROKER_COLUMNS = ("broker", "address", "rack", "state", "leads", "replicas", "behind", "coming")
NUMBERS = ("broker", "leads", "replicas", "behind", "coming")
TROUBLES = {
    "offline": "no leader",
    "under_min_isr": "too few in sync for acks=all",
    "under_replicated": "not all in sync",
}
WORST_FIRST = list(TROUBLES.values())


def _print(document: Document, address: ClusterAddress, *, as_json: bool) -> None:
    if as_json:
        output.print_json(document)
    elif output.is_terminal():
        _draw(document, address)
    else:
        _print_lines(document)


def _print_lines(document: Document) -> None:
    """Print tab-separated lines: the subject first, then its fields."""
    counts = [len(document[name]) for name in (*TROUBLES, "moving")]
    totals = (document["controller"], document["topic_count"], document["partition_count"], *counts)
    output.print_rows(output.Columns(), [("cluster", document["cluster"], *totals)])
    rows = [("broker", *_broker_row(one)) for one in document["brokers"]]
    output.print_rows(output.Columns(), rows)
    for trouble in TROUBLES:
        output.print_rows(
            output.Columns(),
            [(trouble, *_partition_row(one), _awaited(one)) for one in document[trouble]],
        )
    rows = [
        ("moving", *_move_row(one), one["bytes_copied"], one["bytes_total"])
        for one in document["moving"]
    ]
    output.print_rows(output.Columns(), rows)


def _draw(document: Document, address: ClusterAddress) -> None:
    output.print_heading(f"cluster {document['cluster']}: {_in_words(document)}")
    rows = [_broker_row(one) for one in document["brokers"]]
    output.print_rows(output.Columns(*BROKER_COLUMNS, numbers=NUMBERS), rows)
    controller = document["controller"]
    output.print_line(
        f"{counted(document['topic_count'], 'topic')}, "
        f"{counted(document['partition_count'], 'partition')}; "
        + ("no controller now" if controller is None else f"controller: {controller}")
    )
    named = {
        (one["topic"], one["partition"]): (
            *_partition_row(one),
            TROUBLES[trouble],
            _awaited(one),
        )
        # A partition is listed once, under its worst problem.
        for trouble in reversed(TROUBLES)
        for one in document[trouble]
    }
    _draw_some(
        ("topic", "partition", "leader", "replicas", "in sync", "trouble", "waits for"),
        sorted(named.values(), key=_place),
    )
    _draw_some(
        ("topic", "partition", "from", "to", "copied", "bytes"),
        [(*_move_row(one), _part_copied(one)) for one in document["moving"]],
    )
    if document["moving"] and document["throttles"]:
        output.print_line(f"throttles are set for brokers: {address.command('throttle')}")


def _place(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sort key: worst problem first, then users' topics before internal ones, because only some rows are drawn."""
    return WORST_FIRST.index(row[-2]), is_internal(row[0]), row[:-1]


def _draw_some(columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> None:
    if not rows:
        return
    output.print_rows(output.Columns(*columns, numbers=("partition",)), rows[:LISTED_MAX])
    if len(rows) > LISTED_MAX:
        output.print_line(f"and {len(rows) - LISTED_MAX:,} more; --json has them all")


def _in_words(document: Document) -> str:
    words = {
        "offline": "offline",
        "under_min_isr": "under min ISR",
        "under_replicated": "under-replicated",
    }
    told = [
        f"{counted(len(document[name]), 'partition')} {text}"
        for name, text in words.items()
        if document[name]
    ]
    if document["moving"]:
        told.append(f"{counted(len(document['moving']), 'partition')} being moved")
    return ", ".join(told) or "healthy"


def _partition_row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    # As text: None would not sort beside numbers.
    leader = "" if one["leader"] is None else str(one["leader"])
    return (
        one["topic"],
        one["partition"],
        leader,
        output.comma_separated(one["replicas"]),
        output.comma_separated(one["in_sync"]),
    )


def _broker_row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    cells = {
        **one,
        "state": state_in_words(one["state"], one["membership"]),
        "replicas": one["replica_count"],
    }
    return tuple(cells[name] for name in BROKER_COLUMNS)


def _awaited(one: Mapping[str, Any]) -> str | None:
    return None if one["waits_for"] is None else str(Awaited(**one["waits_for"]))


def _move_row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    copied = f"{one['added']}/{len(one['adding'])}"
    before, after = (
        output.comma_separated(one["replicas"]),
        output.comma_separated(one["target_replicas"]),
    )
    return one["topic"], one["partition"], before, after, copied


def _part_copied(one: Mapping[str, Any]) -> str | None:
    copied, total = one["bytes_copied"], one["bytes_total"]
    return None if total is None else part_of_bytes(copied, total)


def state_in_words(state: str, membership: str) -> str:
    """For example `draining, stopped`; the defaults (member, up) are left out."""
    if membership == "member":
        return state
    if membership == "removed":
        return "removed, but up" if state in ("up", "stopping") else "removed"
    return membership if state == "up" else f"{membership}, {state}"
