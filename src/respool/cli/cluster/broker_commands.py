"""Run and print `respool cluster drain`, `remove`, `add`, `balance` and `throttle`."""

import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from respool.cli import options, output
from respool.cli.output import confirm
from respool.cluster.view import ClusterView
from respool.model.ids import BrokerId, TopicPartition
from respool.model.operator_errors import OperatorError, UsageError
from respool.model.quantities import counted, human_bytes
from respool.operate.balance import (
    BalancePlan,
    begin_balance,
    plan_balance,
    return_leaders,
    wait_until_balanced,
)
from respool.operate.broker_changes import (
    AddedBroker,
    RemovedBroker,
    StuckReplica,
    add_broker,
    drain_broker,
    only_replicas,
    remove_broker,
    replica_count,
    stuck_replicas,
    wait_until_drained,
    wait_until_live,
)
from respool.operate.cluster_store import ClusterAddress, ClusterStore, run_on_cluster
from respool.operate.throttle import (
    COPY_RATE,
    NO_LIMIT,
    read_throttles,
    set_throttle,
    throttle_documents,
)

MOVES_SHOWN_MAX = 50
# At lower rates, copying becomes bursty.
LOW_RATE = 1024 * 1024
# A lower rate without a unit is probably a mistake: 50 instead of 50MB.
UNLIKELY_RATE = 10_000


def _display(doing: str, unit: str) -> Callable[[int], AbstractContextManager[output.ProgressBar]]:
    return lambda total: output.progress(doing, total=total, unit=unit)


async def _read_view(cluster: ClusterStore) -> ClusterView:
    return (await cluster.read()).view


# -- drain -----------------------------------------------------------------------------------------------------------


def drain(
    address: ClusterAddress, broker: BrokerId, *, wait: bool, yes: bool, as_json: bool
) -> None:
    look = address.command("status")
    if not yes and output.can_ask():
        # Between two connections, as everywhere: none stays open while the question waits.
        _confirm_drain(run_on_cluster(address, _read_view), broker)

    async def work(cluster: ClusterStore) -> ClusterView:
        view = await drain_broker(cluster, broker)
        left = replica_count(view, broker)
        if wait and left:
            output.note(
                f"the {counted(left, 'replica')} of broker {broker} are moving to other brokers"
            )
            display = _display(f"draining broker {broker}", "replicas moved")
            view = await wait_until_drained(cluster, broker, display)
        return view

    try:
        view = run_on_cluster(address, work)
    except KeyboardInterrupt:
        output.note(
            f"broker {broker} continues to be drained; see: {look}; "
            f"undo it with: {address.command('add', broker)}"
        )
        raise
    left, stuck = replica_count(view, broker), stuck_replicas(view, broker)
    if as_json:
        named = [
            {"topic": of.topic, "partition": of.partition, "why": why.name}
            for of, why in stuck.items()
        ]
        output.print_json({"broker": broker, "replicas_left": left, "cannot_go": named})
    if left and wait:
        _raise_stuck(broker, stuck, look)
    if as_json:
        return
    if left:
        output.note(
            f"broker {broker} is being drained: {counted(left, 'replica')} left to move; see: {look}"
        )
    else:
        then = address.command("remove", broker)
        if view.is_live(broker):
            then = f"stop it, then: {then}"
        output.note(f"broker {broker} has no replicas left: {then}")


def _confirm_drain(view: ClusterView, broker: BrokerId) -> None:
    """A drain that was started before is only waited for."""
    left = replica_count(view, broker)
    if left and not view.is_drained_or_removed(broker):
        output.confirm_on_terminal(
            f"Move the {counted(left, 'replica')} of broker {broker} to other brokers?"
        )


def _raise_stuck(broker: BrokerId, stuck: Mapping[TopicPartition, StuckReplica], look: str) -> None:
    output.note_some([f"{of} {why.text}" for of, why in stuck.items()])
    raise OperatorError(
        f"broker {broker} is drained except for {counted(len(stuck), 'replica')}, which cannot move",
        hint=f"they move as soon as they can; see: {look}",
    )


# -- remove ----------------------------------------------------------------------------------------------------------


def remove(
    address: ClusterAddress, broker: BrokerId, *, force: bool, yes: bool, as_json: bool
) -> None:
    if force and not yes:
        # Read the state and ask before connecting again: no connection stays open while the question waits.
        _confirm_loss(run_on_cluster(address, _read_view), broker)
    removed = run_on_cluster(address, lambda cluster: remove_broker(cluster, broker, force=force))
    if as_json:
        lost = [{"topic": of.topic, "partition": of.partition} for of in removed.lost]
        output.print_json(
            {
                "broker": broker,
                "removed": True,
                "replicas_left": removed.replicas,
                "wait_for_a_broker": removed.waiting,
                "stays_offline": lost,
            }
        )
    else:
        _print_removed(removed, broker, address)


def _print_removed(removed: RemovedBroker, broker: BrokerId, address: ClusterAddress) -> None:
    recreated, replicas = removed.recreated, removed.replicas
    some = f"{recreated:,} of " if recreated < replicas else ""
    output.note(
        f"broker {broker} was removed from the cluster"
        + (
            f"; recreated on other brokers: {some}its {counted(replicas, 'replica')}"
            if recreated
            else ""
        )
        + f"; admit it again with: {address.command('add', broker)}"
    )
    if removed.waiting:
        output.note(
            f"{counted(removed.waiting, 'replica')} cannot be recreated until another broker joins: too few are left"
        )
    if removed.lost:
        _note_lost(removed.lost)
        output.note(
            f"{counted(len(removed.lost), 'partition')} will stay offline until broker {broker} comes back"
        )


def _confirm_loss(view: ClusterView, broker: BrokerId) -> None:
    lost = only_replicas(view, broker)
    if not lost or view.is_live(broker):
        return
    _note_lost(lost)
    partitions = counted(len(lost), "partition")
    confirm(
        f"{partitions} will stay offline without broker {broker}. Remove it?",
        why=f"{partitions} would stay offline without broker {broker}",
    )


def _note_lost(lost: list[TopicPartition]) -> None:
    output.note_some([f"{of}: no other replica has everything" for of in lost])


# -- add -------------------------------------------------------------------------------------------------------------


class AddOptions(NamedTuple):
    balance: bool
    yes: bool
    as_json: bool


def add(address: ClusterAddress, broker: BrokerId, how: AddOptions) -> None:
    async def work(cluster: ClusterStore) -> None:
        added = await add_broker(cluster, broker)
        _print_added(added, broker, address, how)
        if how.balance:
            await wait_until_live(
                cluster,
                broker,
                on_wait=lambda: output.note(f"waiting until broker {broker} is up"),
            )

    run_on_cluster(address, work)
    if how.balance:
        balance(address, yes=how.yes, as_json=how.as_json)


def _print_added(
    added: AddedBroker, broker: BrokerId, address: ClusterAddress, how: AddOptions
) -> None:
    if added.admitted:
        output.note(f"broker {broker} may have replicas again")
    elif added.live:
        output.note(f"broker {broker} is in the cluster and up")
    else:
        output.note(
            f"broker {broker} {'is down' if added.known else 'is new'}; it joins when it is started:"
        )
    if not added.live:
        flags = shlex.join(address.join_flags)
        output.note(f"  respool serve --broker-id {broker} {flags} --data DIR --listen HOST:PORT")
    if not how.balance:
        output.note(f"then move partitions to it with: {address.command('balance')}")
        if how.as_json:
            output.print_json(
                {
                    "broker": broker,
                    "admitted": added.admitted,
                    "known": added.known,
                    "up": added.live,
                }
            )


# -- balance ---------------------------------------------------------------------------------------------------------


def balance(
    address: ClusterAddress, *, dry_run: bool = False, yes: bool, wait: bool = True, as_json: bool
) -> None:
    plan = run_on_cluster(address, plan_balance)
    if plan.without_rack:
        output.note(
            f"without a rack: broker {output.comma_separated(plan.without_rack)}; racks are ignored until all brokers "
            "have one",
            style="yellow",
        )
    _print_plan(plan, dry_run=dry_run, as_json=as_json)
    if dry_run or not (plan.moves or plan.returns):
        return
    if not yes:
        # Ask between two connections: Ctrl-C does not interrupt a prompt inside an event loop.
        changed = counted(len(plan.moves) + len(plan.returns), "partition")
        confirm(f"Change {changed}?", why=f"this changes {changed}")
    look = address.command("status")
    try:
        run_on_cluster(
            address, lambda cluster: _carry_out(cluster, plan, wait=wait, status_command=look)
        )
    except KeyboardInterrupt:
        output.note(f"reassignments that have started continue; see: {look}")
        raise


async def _carry_out(
    cluster: ClusterStore, plan: BalancePlan, *, wait: bool, status_command: str
) -> None:
    await begin_balance(cluster, plan.moves)
    if wait:
        await wait_until_balanced(cluster, plan.moves, _display("balancing", "partitions moved"))
    # After the moves: a preferred leader may first have had to copy its replica.
    if returned := await return_leaders(cluster):
        output.note(f"{counted(returned, 'partition')} led by the preferred leader again")
    if wait:
        output.note("balanced")
    elif plan.copies:
        output.note(f"the reassignments have started; see: {status_command}")


def _print_plan(plan: BalancePlan, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        output.print_json(
            {
                "dry_run": dry_run,
                "copies": plan.copies,
                "moves": [
                    {
                        "topic": of.topic,
                        "partition": of.partition,
                        "replicas": list(move.before),
                        "target_replicas": list(move.after),
                    }
                    for of, move in plan.moves.items()
                ],
                "leaders": [
                    {
                        "topic": of.topic,
                        "partition": of.partition,
                        "from": one.leader,
                        "to": one.preferred,
                    }
                    for of, one in plan.returns.items()
                ],
            }
        )
        return
    rows = [
        (
            of.topic,
            of.partition,
            output.comma_separated(move.before),
            output.comma_separated(move.after),
        )
        for of, move in plan.moves.items()
    ]
    shown = rows[:MOVES_SHOWN_MAX] if output.is_terminal() else rows
    if shown:
        columns = ("topic", "partition", "from", "to")
        output.print_rows(output.Headings(*columns, numbers=("partition",)), shown)
    if len(rows) > len(shown):
        output.note(f"and {len(rows) - len(shown):,} more; --json has them all")
    if not rows and not plan.returns:
        output.note("the cluster is balanced; there is nothing to move")
        return
    told = [f"{counted(plan.copies, 'replica')} to copy"] if plan.copies else []
    if plan.reordered:
        told.append(
            f"{counted(plan.reordered, 'partition')} whose replicas only change their order"
        )
    if plan.returns:
        told.append(f"{counted(len(plan.returns), 'leader')} to return")
    output.note(", ".join(told) + ("; nothing was changed" if dry_run else ""))


# -- throttle --------------------------------------------------------------------------------------------------------


def rate_by(text: str) -> int:
    """Parse a rate in bytes per second.

    Raises:
        UsageError: the text is not a rate, or the rate is so low that its unit was probably forgotten.
    """
    text = text.strip().lower().removesuffix("/s")
    rate = options.byte_count(text, option="RATE", or_word="none")
    if rate == 0:
        raise UsageError("RATE 0 is ambiguous", hint="use none to remove the limit")
    if rate < UNLIKELY_RATE and text.isdecimal():
        raise UsageError(
            f"RATE {rate} would be bytes per second: almost nothing would be copied",
            hint=f"give it a unit: {rate}MB, or {rate}b if that is meant",
        )
    return rate


def throttle(
    address: ClusterAddress, broker: BrokerId | None, rate: int | None, *, as_json: bool
) -> None:
    left = run_on_cluster(address, lambda cluster: set_throttle(cluster, broker, rate))
    if as_json:
        output.print_json({"broker": broker, "bytes_per_s_max": rate})
        return
    whom = "each broker" if broker is None else f"broker {broker}"
    if rate is not None:
        output.note(f"copies to {whom} are limited to {human_bytes(rate)} per second")
        if rate < LOW_RATE:
            output.note("copies come in pieces of up to 16 MiB, so the waits between them are long")
    elif COPY_RATE in left.get(str(broker), {}):
        output.note(f"copies to {whom} are not limited")
    else:
        output.note(
            f"no limit is set here any more for copies to {whom}; only a broker's copy_bytes_per_s_max, if it has one, "
            "limits them"
        )
    if any(settings.keys() - {COPY_RATE} for settings in left.values()):
        output.note(f"other tools have set throttles as well: {address.command('throttle')}")


def show_throttles(address: ClusterAddress, *, as_json: bool) -> None:
    found = run_on_cluster(address, read_throttles)
    if as_json:
        output.print_json({"throttles": throttle_documents(found)})
        return
    rows = [
        (name, setting, _rate_in_words(setting, value) if output.is_terminal() else value)
        for name, settings in found.items()
        for setting, value in sorted(settings.items())
    ]
    output.print_rows(output.Headings("broker", "setting", "bytes per second"), rows)
    if not rows:
        output.note("no throttles are set beside the brokers' settings files")


def _rate_in_words(setting: str, value: str) -> str:
    return "no limit" if (setting, value) == (COPY_RATE, str(NO_LIMIT)) else value
