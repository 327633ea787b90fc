"""Run and print `respool cluster status`."""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import typer

from respool.cli import output
from respool.cli.exit_codes import ExitCode
from respool.cli.status.partition_problems import (
    PROBLEMS,
    Extra,
    draw_problems,
    draw_some,
    in_words,
    print_problems,
)
from respool.cluster.status_document import Awaited
from respool.model.quantities import counted, part_of_bytes
from respool.operate.cluster_store import ClusterAddress, ClusterStore, run_on_cluster
from respool.operate.status import Document, read_status

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


def _print(document: Document, address: ClusterAddress, *, as_json: bool) -> None:
    if as_json:
        output.print_json(document)
    elif output.is_terminal():
        _draw(document, address)
    else:
        _print_lines(document)


def _print_lines(document: Document) -> None:
    """Print tab-separated lines: the subject first, then its fields."""
    counts = [len(document[name]) for name in (*PROBLEMS, "moving")]
    totals = (document["controller"], document["topic_count"], document["partition_count"], *counts)
    output.print_rows(output.Headings(), [("cluster", document["cluster"], *totals)])
    rows = [("broker", *_broker_row(one)) for one in document["brokers"]]
    output.print_rows(output.Headings(), rows)
    print_problems(document, EXTRA)
    rows = [
        ("moving", *_move_row(one), one["bytes_copied"], one["bytes_total"])
        for one in document["moving"]
    ]
    output.print_rows(output.Headings(), rows)


def _draw(document: Document, address: ClusterAddress) -> None:
    output.print_heading(
        f"cluster {document['cluster']}: {', '.join(in_words(document)) or 'healthy'}"
    )
    rows = [_broker_row(one) for one in document["brokers"]]
    output.print_rows(output.Headings(*BROKER_COLUMNS, numbers=NUMBERS), rows)
    controller = document["controller"]
    output.print_line(
        f"{counted(document['topic_count'], 'topic')}, "
        f"{counted(document['partition_count'], 'partition')}; "
        + ("no controller now" if controller is None else f"controller: {controller}")
    )
    draw_problems(document, EXTRA)
    columns = ("topic", "partition", "from", "to", "copied", "bytes")
    draw_some(
        output.Headings(*columns, numbers=("partition",)),
        [(*_move_row(one), _part_copied(one)) for one in document["moving"]],
    )
    if document["moving"] and document["throttles"]:
        output.print_line(f"throttles are set for brokers: {address.command('throttle')}")


def _broker_row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    cells = {
        **one,
        "state": state_in_words(one["state"], one["membership"]),
        "replicas": one["replica_count"],
    }
    return tuple(cells[name] for name in BROKER_COLUMNS)


def _awaited(one: Mapping[str, Any]) -> str | None:
    return None if one["waits_for"] is None else str(Awaited(**one["waits_for"]))


EXTRA: Extra = {"waits for": _awaited}


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
