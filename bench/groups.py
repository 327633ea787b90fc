"""Groups: heartbeats of thousands of members, commits of offsets, and a start with a long history of them."""

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from bench.broker_process import BrokerProcess
from bench.commit_load import IN_FLIGHT, PARTITIONS_PER_COMMIT, CommitFrame, commit_all
from bench.group_load import (
    HEARTBEAT_SECONDS,
    MEMBERS_PER_GROUP,
    Member,
    allow_many_files,
    group_name,
    heartbeats,
    make_coordinator,
    stable_groups,
    wait_for_groups,
)
from bench.report import Column, Report, Table, count, mebibytes, percent, quantile, seconds
from bench.requests import Client
from bench.scale import QUICK, Scale
from respool.model.internal_topics import CONSUMER_OFFSETS

TOPIC = "bench"
OFFSETS_TOPIC_PARTITIONS = 50
WARM_UP_SECONDS = 1.0
# A few, and as many as a host full of consumers has.
COMMIT_CONNECTIONS = (4, 32)

LATENCY_TARGET_S = 0.050
CPU_TARGET = 0.50
OFFSETS_PER_S_TARGET = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScale:
    groups: int
    # Records in the log of offsets before the start that is measured.
    records: int

    @property
    def offsets(self) -> int:
        """Committed offsets when each group has one for each partition."""
        return self.groups * PARTITIONS_PER_COMMIT


SMALL = GroupScale(groups=200, records=100_000)
LARGE = GroupScale(groups=1_000, records=1_000_000)


def milliseconds(value: float) -> str:
    return f"{value * 1e3:,.1f}"


HEARTBEAT_COLUMNS = (
    Column("what", "broker"),
    Column("members", "members", count),
    Column("per_s", "heartbeats/s", count),
    Column("p50", "p50, ms", milliseconds),
    Column("p99", "p99, ms", milliseconds),
    Column("p99_target", "target", milliseconds),
    Column("largest", "largest, ms", milliseconds),
    Column("cpu", "CPU of a core", percent),
    Column("cpu_target", "target", percent),
    Column("late_p99", "sent late, p99, ms", milliseconds),
    Column("resident", "RSS, MB", mebibytes),
)
COMMIT_COLUMNS = (
    Column("what", "commits"),
    Column("offsets", "offsets", count),
    Column("per_s", "offsets/s", count),
    Column("per_s_target", "target", count),
    Column("cpu", "CPU of a core", percent),
    Column("per_cpu_s", "per broker CPU-s", count),
    Column("client_cpu", "client CPU", percent),
)
START_COLUMNS = (
    Column("what", "start with"),
    Column("log_bytes", "log, MB", mebibytes),
    Column("listening_s", "accepts clients, s", seconds),
    Column("answering_s", "all groups answer, s", seconds),
    Column("cpu_s", "broker CPU-s", seconds),
    Column("replayed_per_s", "records/s", count),
    Column("replayed_per_cpu_s", "per CPU-s", count),
    Column("resident", "RSS, MB", mebibytes),
)


def run(scale: Scale, report: Report) -> None:
    allow_many_files()
    size = SMALL if scale is QUICK else LARGE
    _heartbeat_table(scale, size, report)
    _commits_and_start(size, report)


def _heartbeat_table(scale: Scale, size: GroupScale, report: Report) -> None:
    every = f"every {HEARTBEAT_SECONDS:.0f} s"
    title = f"Groups: {size.groups:,} of {MEMBERS_PER_GROUP} members, a heartbeat of each {every}"
    table = Table("group heartbeats", title, HEARTBEAT_COLUMNS)
    settings = {
        "group_initial_rebalance_delay_ms": 0,
        "connections_per_address_max": 2 * MEMBERS_PER_GROUP * size.groups,
        "connections_max": 2 * MEMBERS_PER_GROUP * size.groups,
    }
    with BrokerProcess(settings) as broker, ExitStack() as stack:
        client = stack.enter_context(Client(broker.host, broker.port))
        client.create_topic(TOPIC, partitions=PARTITIONS_PER_COMMIT)
        make_coordinator(client)
        report.progress(f"groups: {size.groups:,} groups form")
        began = time.perf_counter()
        groups = stable_groups(broker, size.groups, stack)
        took = time.perf_counter() - began
        members = [member for group in groups for member in group]
        report.progress("groups: heartbeats")
        table.rows.append(_heartbeat_row("no offsets", broker, members, scale))
        report.progress(f"groups: heartbeats with {size.offsets:,} offsets")
        leaders = [group[0] for group in groups]
        first = leaders[0]
        frame = CommitFrame(TOPIC, generation=first.generation, member_id=first.member_id)
        frames = (frame.of(one.group_id, one.member_id) for one in leaders)
        commit_all(broker, frames, connections=COMMIT_CONNECTIONS[0])
        what = f"{size.offsets:,} offsets"
        table.rows.append(_heartbeat_row(what, broker, members, scale))
    left_out = sum(row["left_out"] for row in table.rows)
    table.notes.append(
        f"One connection a member. Forming the groups took {took:.1f} s. "
        f"Heartbeats left out, the one before being unanswered: {left_out:,}. "
        f"Load of the machine afterwards: {os.getloadavg()[0]:.1f}."
    )
    report.add(table)


def _heartbeat_row(
    what: str, broker: BrokerProcess, members: list[Member], scale: Scale
) -> dict[str, Any]:
    heartbeats(members, WARM_UP_SECONDS)
    before, began = broker.cpu(), time.perf_counter()
    heard = heartbeats(members, scale.idle_seconds)
    spent, elapsed = broker.cpu() - before, time.perf_counter() - began
    return {
        "what": what,
        "members": len(members),
        "per_s": len(heard.taken) / elapsed,
        "p50": quantile(heard.taken, 0.5),
        "p99": quantile(heard.taken, 0.99),
        "p99_target": LATENCY_TARGET_S,
        "largest": max(heard.taken),
        "cpu": spent.total / elapsed,
        "cpu_target": CPU_TARGET,
        "late_p99": quantile(heard.late, 0.99),
        "left_out": heard.left_out,
        "resident": broker.memory().resident,
    }


def _commits_and_start(size: GroupScale, report: Report) -> None:
    """The commits that are measured are the records that the start then finds."""
    commits = Table("group commits", "Groups: committing offsets", COMMIT_COLUMNS)
    starts = Table("group start", "Groups: a start replays the log of offsets", START_COLUMNS)
    settings = {"offsets_topic_partitions": OFFSETS_TOPIC_PARTITIONS}
    with BrokerProcess(settings) as broker:
        with Client(broker.host, broker.port) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS_PER_COMMIT)
            make_coordinator(client)
        broker.stop()
        empty = _start_row("no groups", broker, groups=0)
        starts.rows.append(empty)
        report.progress(f"groups: {size.records:,} offsets are committed")
        commits.rows.extend(
            _commit_row(broker, size, connections=connections) for connections in COMMIT_CONNECTIONS
        )
        records = _records(broker)
        broker.stop()
        report.progress(f"groups: start with {records:,} records")
        full = _start_row(f"{records:,} records", broker, groups=size.groups)
        full["replayed_per_s"] = records / (full["answering_s"] - empty["answering_s"])
        full["replayed_per_cpu_s"] = records / (full["cpu_s"] - empty["cpu_s"])
        starts.rows.append(full)
    commits.notes.append(
        f"{PARTITIONS_PER_COMMIT} offsets a request, {size.groups:,} groups in turn, {IN_FLIGHT} requests under way "
        f"on each connection. Every reply waits for a sync of the disk. "
        f"Load of the machine afterwards: {os.getloadavg()[0]:.1f}."
    )
    starts.notes.append(
        f"After a clean stop. {size.offsets:,} offsets in {size.groups:,} groups, committed "
        f"{size.records // size.offsets} times; nothing is compacted: the segment being written never is. "
        "Rates are of what the start takes longer than one without groups."
    )
    report.add(commits)
    report.add(starts)


def _commit_row(broker: BrokerProcess, size: GroupScale, *, connections: int) -> dict[str, Any]:
    frame = CommitFrame.of_no_member(TOPIC)
    frames = [frame.of(group_name(number)) for number in range(size.groups)]
    requests = size.records // PARTITIONS_PER_COMMIT // len(COMMIT_CONNECTIONS)
    before, client_before, began = broker.cpu(), time.process_time(), time.perf_counter()
    chosen = (frames[number % size.groups] for number in range(requests))
    commit_all(broker, chosen, connections=connections)
    elapsed = time.perf_counter() - began
    spent = broker.cpu() - before
    offsets = requests * PARTITIONS_PER_COMMIT
    return {
        "what": f"{connections} connections",
        "offsets": offsets,
        "per_s": offsets / elapsed,
        "per_s_target": OFFSETS_PER_S_TARGET,
        "cpu": spent.total / elapsed,
        "per_cpu_s": offsets / spent.total,
        "client_cpu": (time.process_time() - client_before) / elapsed,
    }


def _start_row(what: str, broker: BrokerProcess, *, groups: int) -> dict[str, Any]:
    began = time.perf_counter()
    listening_s = broker.start()
    with Client(broker.host, broker.port) as client:
        wait_for_groups(client, groups)
    answering_s = time.perf_counter() - began
    return {
        "what": what,
        "log_bytes": sum(
            path.stat().st_size for path in broker.folder.glob(f"{CONSUMER_OFFSETS}-*/*.log")
        ),
        "listening_s": listening_s,
        "answering_s": answering_s,
        "cpu_s": broker.cpu().total,
        "resident": broker.memory().resident,
    }


def _records(broker: BrokerProcess) -> int:
    with Client(broker.host, broker.port) as client:
        return sum(
            client.end_offset(CONSUMER_OFFSETS, number)
            for number in range(OFFSETS_TOPIC_PARTITIONS)
        )
