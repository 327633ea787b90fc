"""Run `respool cluster up` and print what its local cluster reports."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import typer

from respool.cli import output
from respool.cli.exit_codes import ExitCode
from respool.cli.interrupts import handling_signals
from respool.devcluster.child_process import ChildProcess
from respool.devcluster.cluster_plan import ClusterPlan, plan_cluster
from respool.devcluster.local_cluster import EndedBroker, RunningBroker, run_local_cluster
from respool.model.addresses import format_address
from respool.model.cluster import BrokerEndpoint
from respool.node.config import unknown_variables


def run_cluster(
    *,
    broker_count: int,
    folder: Path,
    listen: str,
    advertised: str | None,
    racks: Sequence[str],
    etcd: str | None,
    given: Mapping[str, str],
    secure: bool = False,
) -> None:
    """Run the cluster until Ctrl-C or SIGTERM, or until the last broker has ended."""
    plan = plan_cluster(
        broker_count=broker_count,
        folder=folder,
        listen=listen,
        advertised=advertised,
        racks=racks,
        etcd=etcd,
        given=given,
        secure=secure,
    )
    output.note_some(unknown_variables(os.environ))
    # Warnings about etcd are in the brokers' logs.
    logging.basicConfig(level=logging.ERROR)
    was_killed = run_local_cluster(
        plan, PrintedEvents(plan), starts_etcd=etcd is None, stop_signals=_stop_signals
    )
    if was_killed:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _stop_signals(stop: Callable[[], None]) -> AbstractContextManager[None]:
    ending = [signal.SIGINT, signal.SIGTERM]
    # Under nohup the cluster must outlive its terminal.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ending.append(signal.SIGHUP)
    return handling_signals(ending, stop)


class PrintedEvents:
    """Prints the events of a local cluster."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._config = f"--config {shown_path(plan.file)}"

    def on_removed(self, broker: int) -> None:
        output.note(
            f"broker {broker} was removed from the cluster and is not started; admit it again with: respool "
            f"cluster add {broker} {self._config}, then start this command again"
        )

    def on_slow_start(self, child: ChildProcess) -> None:
        output.note(f"still waiting for {child.name}: {child.last_words}")

    def on_up(self, brokers: list[RunningBroker]) -> None:
        rows = [
            (one.id, one.address, str(one.pid), shown_path(one.data), shown_path(one.log))
            for one in brokers
        ]
        columns = ("broker", "address", "pid", "data", "log")
        output.print_rows(output.Headings(*columns, numbers=("broker", "pid")), rows)
        output.print_line(f"bootstrap.servers={','.join(one.address for one in brokers)}")
        sys.stdout.flush()
        security = self._plan.security
        if security is None:
            output.note(f"see: respool cluster status {self._config}")
        else:
            how = f"--client-config {shown_path(security.admin_file)}"
            output.note(f"how the administrator connects: {how}")
            output.note(f"add users: respool user add NAME --write NAME.properties {how}")
            output.note(f"see: respool cluster status {self._config} {how}")
        output.note("Ctrl-C stops it")

    def on_left_out(self, broker: int) -> None:
        output.note(
            f"broker {broker} has data here and is not started: its replicas are missing. Start it with --brokers "
            f"{max(self._plan.left_out)}; or remove it with: respool cluster remove {broker} --force {self._config}"
        )

    def on_ended(self, child: ChildProcess, *, is_etcd: bool) -> None:
        output.note(f"{child.name} (pid {child.pid}) {child.how_and_why_it_ended}")
        output.note(f"  its log: {child.log}")
        if is_etcd:
            output.note(
                "  without etcd the brokers stop serving soon: stop this and start it again"
            )

    def on_broker_ended(self, broker: EndedBroker) -> None:
        output.note(f"  {next_step(broker, config=self._config)}")

    def on_guests_only(self) -> None:
        output.note("brokers that were started beside them still run; Ctrl-C stops etcd")

    def on_guest_loses_etcd(self, guest: BrokerEndpoint) -> None:
        output.note(
            f"broker {guest.id} at {format_address(guest.host, guest.port)} was started beside these and loses its "
            "etcd: stop it as well",
            style="yellow",
        )

    def on_stop(self) -> None:
        output.note("stopping one broker after the other; Ctrl-C again kills them")

    def on_kill(self, child: ChildProcess, seconds: float) -> None:
        output.note(f"{child.name} did not stop within {seconds:.0f} s, and is killed")


def next_step(broker: EndedBroker, *, config: str) -> str:
    """What to do about a broker that has ended; `config` is the flag that names the cluster."""
    if broker.entry.is_removed:
        return "it was removed from the cluster: the next run leaves it out"
    if broker.entry.is_drained:
        return (
            f"it was drained: remove it with: respool cluster remove {broker.id} {config}; "
            "the next run starts it again otherwise"
        )
    if broker.was_last:
        return "it was the last one: run this command again to start all of them"
    own = {
        name: shown_path(value) if isinstance(value, Path) else value
        for name, value in broker.serve_flags.items()
    }
    again = " ".join(["respool serve", config, *(f"--{name} {own[name]}" for name in own)])
    return f"the others continue; start it again with: {again}; or run this command again later"


def shown_path(path: Path) -> Path:
    """The path relative to the working directory, if it lies below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
