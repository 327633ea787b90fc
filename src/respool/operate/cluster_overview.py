"""The state of a broker or a cluster as one document: what a survey of its brokers found, and what it could not learn.

`status.py` describes the same from the metadata store of a Respool cluster; fields of the same name mean the same.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from respool.client.kafka.metadata import Place
from respool.client.kafka.replicas import LogDir
from respool.model.addresses import format_address
from respool.operate.cluster_survey import Gap, GapReason, Survey

Document = dict[str, Any]

# A broker that does not answer, or not without an error, is a problem in itself. Requests that it does not serve, or
# that this client may not send, do not count as failures.
_PROBLEMS = (GapReason.UNREACHABLE, GapReason.UNTRUSTED, GapReason.REFUSED)
# The state of a broker that is in the metadata and has such a gap, worst first.
_STATES = {
    GapReason.UNREACHABLE: "unreachable",
    GapReason.UNTRUSTED: "untrusted",
    GapReason.TIMEOUT: "unresponsive",
}


def describe(found: Survey) -> Document:
    """Return the document that `respool status --json` prints."""
    partitions = list(_partitions(found))
    offline = [one for one in partitions if one["leader"] is None]
    under_replicated = [one for one in partitions if _is_under_replicated(one, found)]
    under_min_isr = [one for one in under_replicated if _is_under_min_isr(one, found)]
    brokers = _brokers(found, partitions)
    return {
        "cluster_id": found.cluster.id,
        "controller": found.cluster.controller,
        "is_well": not (offline or under_min_isr or under_replicated)
        and not any(folder["is_offline"] for one in brokers for folder in one["log_dirs"])
        and not any(map(_is_problem, found.gaps)),
        "topic_count": len(found.topics),
        "partition_count": len(partitions),
        "bytes": _sum(one["bytes"] for one in brokers),
        "brokers": brokers,
        "offline": offline,
        "under_min_isr": under_min_isr,
        "under_replicated": under_replicated,
        "moving": [
            {
                "topic": topic,
                "partition": number,
                "adding": list(one.adding),
                "removing": list(one.removing),
            }
            for (topic, number), one in sorted(found.reassignments.items())
        ],
        "groups": None
        if found.groups is None
        else [
            {
                "group": one.name,
                "state": one.state,
                "type": one.type,
                "lag": found.lags.get(one.name),
            }
            for one in found.groups
        ],
        "open_transaction_count": _sum(found.open_transactions.values()),
        "long_open_transaction_count": _sum(found.long_open_transactions.values()),
        "unknown": [asdict(gap) for gap in found.gaps],
    }


def _is_problem(gap: Gap) -> bool:
    # Brokers that answer may still be asked for more than there is time for, such as the lag of thousands of groups.
    return gap.reason in _PROBLEMS or (gap.reason is GapReason.TIMEOUT and gap.broker is not None)


def _partitions(found: Survey) -> Iterable[Document]:
    for name, topic in sorted(found.topics.items()):
        for number, leader in topic.leaders.items():
            yield {
                "topic": name,
                "partition": number,
                "leader": None if leader is None else leader.broker,
                "replicas": list(topic.replicas[number]),
                "in_sync": list(topic.in_sync[number]),
            }


def _is_under_replicated(one: Document, found: Survey) -> bool:
    # Replicas that a reassignment adds are not in sync yet, by design.
    place: Place = one["topic"], one["partition"]
    moving = found.reassignments.get(place)
    adding = () if moving is None else moving.adding
    return not {*one["replicas"]}.difference(adding) <= {*one["in_sync"]}


def _is_under_min_isr(one: Document, found: Survey) -> bool:
    # Brokers lower it to the replication factor.
    needed = min(found.min_isr.get(one["topic"], 1), len(one["replicas"]))
    return len(one["in_sync"]) < needed


def _brokers(found: Survey, partitions: Iterable[Document]) -> list[Document]:
    """The brokers that run, and those that do not although they have replicas."""
    leads, hosts, behind = Counter[int](), Counter[int](), Counter[int]()
    for one in partitions:
        leads.update(() if one["leader"] is None else (one["leader"],))
        hosts.update(one["replicas"])
        behind.update({*one["replicas"]}.difference(one["in_sync"]))
    seen = {(gap.broker, gap.reason) for gap in found.gaps}
    shown = []
    for broker in sorted({*found.cluster.brokers, *hosts}):
        node = found.cluster.brokers.get(broker)
        folders = found.log_dirs.get(broker)
        shown.append(
            {
                "broker": broker,
                "address": None if node is None else format_address(*node.address),
                "rack": None if node is None else node.rack,
                "state": "missing"
                if node is None
                else next((_STATES[why] for why in _STATES if (broker, why) in seen), "up"),
                "leads": leads[broker],
                "replica_count": hosts[broker],
                "behind": behind[broker],
                "bytes": None if folders is None else sum(map(_bytes_of, folders)),
                "log_dirs": [_log_dir(one) for one in folders or ()],
            }
        )
    return shown


def _log_dir(one: LogDir) -> Mapping[str, Any]:
    return {
        "path": one.path,
        "bytes": _bytes_of(one),
        "total_bytes": one.total_bytes,
        "usable_bytes": one.usable_bytes,
        "is_offline": one.error is not None,
    }


def _bytes_of(folder: LogDir) -> int:
    return sum(one.bytes for one in folder.replicas.values())


def _sum(numbers: Iterable[int | None]) -> int | None:
    """The sum of the known numbers; None if none is known."""
    known = [one for one in numbers if one is not None]
    return sum(known) if known else None
