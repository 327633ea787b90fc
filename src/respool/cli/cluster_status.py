"""The work of `respool cluster status`: who is there, who leads what, and what is wrong with partitions."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import typer

from respool.cli import cluster_store, output
from respool.cli.cluster_address import ClusterAddress
from respool.cli.cluster_store import ClusterStore, Sight
from respool.cli.cluster_throttle import throttle_documents, throttles
from respool.cli.copied_bytes import Copied, ask_brokers
from respool.cli.errors import ExitCode
from respool.cluster.broker_requests import holdings
from respool.cluster.reassignment_requests import reassignments
from respool.cluster.status import Awaited, BrokerStatus, leader_now, status, waits_for
from respool.model.cluster import PartitionImage, RegistryEntry
from respool.model.ids import BrokerId, TopicPartition
from respool.model.internal_topics import is_internal

LISTED_MAX = 20
WATCH_EVERY_S = 1.0
CLEAR_SCREEN = "\x1b[H\x1b[2J"

Document = dict[str, Any]


class Shown(NamedTuple):
    as_json: bool
    check: bool
    watch: bool


def show_status(address: ClusterAddress, how: Shown) -> None:
    async def work(cluster: ClusterStore) -> Document:
        sight = await cluster.look()
        sight.check_is_there()
        if how.watch:
            await _watch(cluster, address, as_json=how.as_json)
        return describe(sight, await ask_brokers(sight.view))

    try:
        document = cluster_store.run(address, work)
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
        # Whoever closed the pipe has seen enough of the text, and not yet how the check ended.
        output.drop_what_is_left()
    if how.check and not document["is_well"]:
        raise typer.Exit(ExitCode.FAILED)


async def _watch(cluster: ClusterStore, address: ClusterAddress, *, as_json: bool) -> None:
    """Until somebody ends it: drawn anew on a terminal, elsewhere printed whenever something has changed."""
    before: Document | None = None
    while True:
        sight = await cluster.look()
        document = describe(sight, await ask_brokers(sight.view))
        if as_json and document != before:
            output.print_line(output.json_line(document))
        elif document != before:
            if output.is_terminal():
                sys.stdout.write(CLEAR_SCREEN)
            _print(document, address, as_json=False)
        sys.stdout.flush()
        before = document
        await asyncio.sleep(WATCH_EVERY_S)


def describe(sight: Sight, copied: Mapping[TopicPartition, Copied]) -> Document:
    """What is printed, and what programs get."""
    view, found = sight.view, status(sight.view)
    return {
        "cluster": sight.cluster,
        "controller": sight.controller,
        "is_well": found.is_well,
        "topic_count": len(view.topics),
        "partition_count": found.partition_count,
        "brokers": [
            {
                "broker": one,
                "address": _address(sight, one),
                "rack": broker.rack,
                "state": state_of(broker, view.registry.get(one, RegistryEntry())),
                "membership": membership_of(broker),
                "leads": broker.leads,
                "replica_count": broker.replicas,
                "behind": broker.behind,
                "coming": holdings(view, one).coming,
            }
            for one, broker in found.brokers.items()
        ],
        "offline": _partitions(sight, found.leaderless),
        "under_min_isr": _partitions(sight, found.under_min_isr),
        "under_replicated": _partitions(sight, found.under_replicated),
        "moving": [_move(of, image, copied.get(of)) for of, image in reassignments(view).items()],
        "throttles": throttle_documents(throttles(view)),
    }


def state_of(broker: BrokerStatus, entry: RegistryEntry) -> str:
    """Whether it runs: up, stopping, stopped or missing."""
    if broker.is_live:
        return "stopping" if broker.is_stopping else "up"
    return "missing" if entry.clean_epoch is None else "stopped"


def membership_of(broker: BrokerStatus) -> str:
    """Whether it may hold replicas: member, draining, drained or removed."""
    if broker.is_removed:
        return "removed"
    if not broker.is_drained:
        return "member"
    return "draining" if broker.replicas else "drained"


def state_in_words(state: str, membership: str) -> str:
    """`draining, stopped`; where the one goes without saying, the other alone."""
    if membership == "member":
        return state
    if membership == "removed":
        return "removed, but up" if state in ("up", "stopping") else "removed"
    return membership if state == "up" else f"{membership}, {state}"


def _address(sight: Sight, broker: BrokerId) -> str | None:
    """Where it is; of one that does not run, where it was."""
    endpoint = sight.view.brokers.get(broker)
    if endpoint is not None:
        return address_of(endpoint.host, endpoint.port)
    entry = sight.view.registry.get(broker, RegistryEntry())
    if entry.host is None or entry.port is None:
        return None
    return address_of(entry.host, entry.port)


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _partitions(sight: Sight, partitions: Sequence[TopicPartition]) -> list[Document]:
    shown = []
    for of in partitions:
        _, image = sight.view.partition(of) or (None, None)
        assert image is not None
        awaited = waits_for(sight.view, image)
        shown.append(
            {
                "topic": of.topic,
                "partition": of.partition,
                "leader": leader_now(sight.view, image),
                "replicas": list(image.target),
                "in_sync": list(image.isr),
                "eligible": list(image.elr),
                "waits_for": None if awaited is None else asdict(awaited),
            }
        )
    return shown


def _move(of: TopicPartition, image: PartitionImage, how_far: Copied | None) -> Document:
    return {
        "topic": of.topic,
        "partition": of.partition,
        "replicas": [one for one in image.replicas if one not in image.adding],
        "target_replicas": list(image.target),
        "adding": list(image.adding),
        "removing": list(image.removing),
        # So many of those that come have everything.
        "added": sum(one in image.isr for one in image.adding),
        "bytes_copied": None if how_far is None else how_far.copied_bytes,
        "bytes_total": None if how_far is None else how_far.total_bytes,
    }


# -- printing --------------------------------------------------------------------------------------------------------

BROKER_COLUMNS = ("broker", "address", "rack", "state", "leads", "replicas", "behind", "coming")
NUMBERS = ("broker", "leads", "replicas", "behind", "coming")
TROUBLES = {
    "offline": "nobody leads it",
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
    """One shape for every line: what it is about, then its fields."""
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
        f"{output.counted(document['topic_count'], 'topic')}, "
        f"{output.counted(document['partition_count'], 'partition')}; "
        + ("nobody is the controller now" if controller is None else f"controller: {controller}")
    )
    named = {
        (one["topic"], one["partition"]): (
            *_partition_row(one),
            TROUBLES[trouble],
            _awaited(one),
        )
        # The worst is what is told of a partition.
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
    """The worst first, and of them the users' topics: of many only some are drawn, and the brokers' own are many."""
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
        "under_min_isr": "with too few in sync",
        "under_replicated": "not fully replicated",
    }
    told = [
        f"{output.counted(len(document[name]), 'partition')} {text}"
        for name, text in words.items()
        if document[name]
    ]
    if document["moving"]:
        told.append(f"{output.counted(len(document['moving']), 'partition')} on the way")
    return ", ".join(told) or "all is well"


def _partition_row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    # As text: a leader there is none of would not sort beside numbers.
    leader = "" if one["leader"] is None else str(one["leader"])
    return one["topic"], one["partition"], leader, spelled(one["replicas"]), spelled(one["in_sync"])


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
    before, after = spelled(one["replicas"]), spelled(one["target_replicas"])
    return one["topic"], one["partition"], before, after, copied


def _part_copied(one: Mapping[str, Any]) -> str | None:
    copied, total = one["bytes_copied"], one["bytes_total"]
    return None if total is None else output.part_of_bytes(copied, total)


def spelled(brokers: Sequence[int]) -> str:
    return ",".join(str(one) for one in brokers)
