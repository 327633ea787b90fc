"""The work of `respool cluster up`: etcd and brokers as children of this process, watched, and stopped in order."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from respool.cli import output
from respool.cli.child_process import ChildProcess
from respool.cli.cluster_guests import Guests
from respool.cli.cluster_plan import BrokerPlan, ClusterPlan, plan_cluster
from respool.cli.cluster_registry import ask_entry, is_removed, registered, what_is_next
from respool.cli.cluster_status import address_of
from respool.cli.cluster_store import EtcdUnreachable
from respool.cli.errors import ExitCode
from respool.cli.etcd_server import EtcdMissing, EtcdServer, find_etcd
from respool.cli.interrupts import handling_signals
from respool.drivers.folder_lock import FolderLock
from respool.model.addresses import parse_address
from respool.model.cluster import BrokerEndpoint
from respool.model.errors import SettingsError, StorageError
from respool.model.ids import BrokerId
from respool.model.operator_errors import OperatorError, UsageError
from respool.node.config import unknown_variables
from respool.node.etcd import connect_to_etcd, is_refusal
from respool.ports.metadata_store import MetadataStore, StoreUnavailable

# -P: a folder named respool, where this is run, is not our package.
SERVE = [sys.executable, "-P", "-m", "respool.cli", "serve"]
LOOK_EVERY_S = 0.2
# After so long without all brokers it is told who is missing.
PATIENCE_S = 20.0
ETCD_START_SECONDS_MAX = 60.0
# Beyond what a broker waits for by itself when it stops.
STOP_GRACE_S = 20.0
LAST_LOOK_S = 2.0
ETCD_STOP_SECONDS_MAX = 15.0


def run_cluster(
    *,
    broker_count: int,
    folder: Path,
    listen: str,
    advertised: str | None,
    racks: Sequence[str],
    etcd: str | None,
    given: Mapping[str, str],
) -> None:
    """Run it until Ctrl-C or SIGTERM, or until the last broker is dead."""
    plan = plan_cluster(
        broker_count=broker_count,
        folder=folder,
        listen=listen,
        advertised=advertised,
        racks=racks,
        etcd=etcd,
        given=given,
    )
    output.note_some(unknown_variables(os.environ))
    if etcd is None and find_etcd() is None:
        raise EtcdMissing
    # What is noteworthy about etcd stands in the brokers' logs.
    logging.basicConfig(level=logging.ERROR)
    try:
        with FolderLock(str(plan.folder)):
            is_killed = asyncio.run(LocalCluster(plan, starts_etcd=etcd is None).run())
    except StorageError as error:
        raise OperatorError(str(error), hint="choose another folder with --data") from error
    if is_killed:
        raise typer.Exit(ExitCode.INTERRUPTED)


class AskedToStop(Exception):
    """Ctrl-C or SIGTERM, while something was waited for."""


class LocalCluster:
    def __init__(self, plan: ClusterPlan, *, starts_etcd: bool) -> None:
        self._plan = plan
        self._starts_etcd = starts_etcd
        self._etcd: EtcdServer | None = None
        self._brokers: dict[int, ChildProcess] = {}
        self._addresses: dict[BrokerId, str] = {}
        self._guests = Guests()
        self._is_up = False
        self._signals = 0

    async def run(self) -> bool:
        """Whether somebody would not wait for a clean stop."""
        ending = [signal.SIGINT, signal.SIGTERM]
        # Under nohup it is to outlive its terminal.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            ending.append(signal.SIGHUP)
        with handling_signals(ending, self._on_signal):
            try:
                await self._start()
                await self._watch()
            except AskedToStop:
                pass
            finally:
                await self._stop()
        return self._signals > 1

    # -- starting ----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        plan = self._plan
        if self._starts_etcd:
            self._etcd = EtcdServer(
                plan.folder / "etcd", log=plan.folder / "etcd.log", before=plan.etcd_before()
            )
            plan = self._plan = plan.with_etcd(self._etcd.address)
        said_before = plan.file.read_bytes() if plan.file.exists() else None
        plan.write_file()
        try:
            await self._start_all()
        except BaseException:
            if said_before is not None:
                # Others may still run by it, on the etcd that it names.
                plan.file.write_bytes(said_before)
            raise

    async def _start_all(self) -> None:
        plan = self._plan
        store = await self._connect()
        try:
            plan = self._plan = await self._without_removed(store)
            # A run that was killed may be registered for a while yet.
            before = {one.epoch for one in (await registered(store)).values()}
            for broker in plan.brokers:
                self._brokers[broker.id] = self._start_broker(broker)
            endpoints = await self._wait_until_registered(store, before)
            self._guests.leave_out(endpoints.values())
            self._is_up = True
            self._show(endpoints)
            await self._tell_left_out(store)
        except StoreUnavailable as error:
            raise EtcdUnreachable(f"etcd does not answer any more: {error}") from error
        finally:
            await store.close()

    async def _without_removed(self, store: MetadataStore) -> ClusterPlan:
        """Who was removed is not let in, and would only end at once."""
        plan = self._plan
        removed = [one.id for one in plan.brokers if await is_removed(store, one.id)]
        if not removed:
            return plan
        for number in removed:
            output.note(
                f"broker {number} was removed from the cluster and is not started; let it in again with: respool "
                f"cluster add {number} --config {_short(plan.file)}, and start this anew"
            )
        if len(removed) == len(plan.brokers):
            raise OperatorError(
                "all brokers were removed from the cluster", hint="start more with --brokers"
            )
        plan = plan.without(removed)
        plan.write_file()
        return plan

    def _start_broker(self, broker: BrokerPlan) -> ChildProcess:
        options = {"config": self._plan.file, **broker.own_flags}
        return ChildProcess(
            f"broker {broker.id}",
            [*SERVE, *(f"--{name}={value}" for name, value in options.items())],
            log=broker.log,
            environ=self._plan.environ,
        )

    async def _connect(self) -> MetadataStore:
        """etcd takes a moment to start."""
        deadline = asyncio.get_running_loop().time() + ETCD_START_SECONDS_MAX
        while True:
            try:
                return await connect_to_etcd(self._plan.settings)
            except SettingsError as error:
                raise UsageError(str(error)) from error
            except StoreUnavailable as error:
                if is_refusal(error):
                    raise OperatorError(str(error)) from error
                is_over = asyncio.get_running_loop().time() > deadline
                if self._etcd is None or is_over:
                    raise EtcdUnreachable(f"etcd does not answer: {error}") from error
            self._check_started(self._etcd)
            await self._pause()

    async def _wait_until_registered(
        self, store: MetadataStore, before: set[int]
    ) -> dict[BrokerId, BrokerEndpoint]:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        is_told = False
        while True:
            found = await registered(store)
            ours = {one: found[BrokerId(one)] for one in self._brokers if one in found}
            missing = [one for one in self._brokers if one not in ours or ours[one].epoch in before]
            if not missing:
                return {BrokerId(one): endpoint for one, endpoint in ours.items()}
            for number in missing:
                self._check_started(self._brokers[number])
            if not is_told and asyncio.get_running_loop().time() > deadline:
                is_told = True
                for number in missing:
                    child = self._brokers[number]
                    output.note(f"still waiting for {child.name}: {child.last_words}")
            await self._pause()

    def _check_started(self, child: ChildProcess) -> None:
        if not child.is_running:
            raise OperatorError(
                f"{child.name} did not start, it {child.how_and_why_it_ended}",
                hint=f"its log: {child.log}",
            )

    # -- running -----------------------------------------------------------------------------------------------------

    def _show(self, endpoints: Mapping[BrokerId, BrokerEndpoint]) -> None:
        addresses = {one.id: address_of(one.host, one.port) for one in endpoints.values()}
        self._addresses |= addresses
        columns = ("broker", "address", "pid", "data", "log")
        rows = [
            (
                one.id,
                addresses[BrokerId(one.id)],
                str(self._brokers[one.id].pid),
                _short(one.data),
                _short(one.log),
            )
            for one in self._plan.brokers
        ]
        output.print_rows(output.Columns(*columns, numbers=("broker", "pid")), rows)
        output.print_line(f"bootstrap.servers={','.join(addresses.values())}")
        sys.stdout.flush()
        output.note(f"look at it with: respool cluster status --config {_short(self._plan.file)}")
        output.note("Ctrl-C stops it")

    async def _tell_left_out(self, store: MetadataStore) -> None:
        for number in self._plan.left_out:
            if await is_removed(store, number, or_unknown=True):
                continue
            output.note(
                f"broker {number} has data here and is not started: its replicas are missing. Start it with --brokers "
                f"{max(self._plan.left_out)}; or give it up with: respool cluster remove {number} --force "
                f"--config {_short(self._plan.file)}"
            )

    async def _watch(self) -> None:
        """Tell who ends, until nobody is left: neither of ours, nor of those that somebody started beside them."""
        told: set[str] = set()
        is_host = False
        while not is_host or await self._has_guests():
            for child in self._children:
                if not child.is_running and child.name not in told:
                    told.add(child.name)
                    await self._tell_ended(child)
            if not is_host and not any(one.is_running for one in self._brokers.values()):
                is_host = True
                if await self._has_guests():
                    output.note("others run that were started beside them; Ctrl-C ends etcd")
            await self._pause()
        raise OperatorError("no broker is left", hint=f"their logs are in {self._plan.folder}")

    async def _has_guests(self) -> bool:
        if self._etcd is None or not self._etcd.is_running:
            return False
        own = [number for number, child in self._brokers.items() if child.is_running]
        return await self._guests.are_there(self._plan.settings, own=own)

    async def _tell_ended(self, child: ChildProcess) -> None:
        output.note(f"{child.name} (pid {child.pid}) {child.how_and_why_it_ended}")
        output.note(f"  its log: {child.log}")
        if child is self._etcd:
            output.note(
                "  without etcd the brokers stop serving soon: stop this and start it again"
            )
            return
        number = next(one for one, broker in self._brokers.items() if broker is child)
        entry = await ask_entry(self._plan.settings, number)
        flags = f"--config {_short(self._plan.file)}"
        (broker,) = (one for one in self._plan.brokers if one.id == number)
        # Where it listens now, for port 0 was any; and its folder as somebody would type it.
        host, _ = parse_address("listen", broker.listen)
        _, port = parse_address("advertised", self._addresses[BrokerId(number)])
        own = {
            **broker.own_flags,
            "data": _short(broker.data),
            "listen": address_of(host, port),
        }
        again = " ".join(["respool serve", flags, *(f"--{name} {own[name]}" for name in own)])
        are_others = any(one.is_running for one in self._brokers.values())
        told = what_is_next(
            entry,
            number,
            flags=flags,
            again=again,
            was_last=not are_others and not await self._has_guests(),
        )
        output.note(f"  {told}")

    # -- stopping ----------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """One broker after the other, so that the next takes over what it led; etcd last, for they all need it."""
        settings = self._plan.settings
        seconds = (
            settings.stop_grace_ms + settings.membership.handover_max_ms
        ) / 1000 + STOP_GRACE_S
        try:
            await self._tell_of_guests()
        finally:
            for child in self._brokers.values():
                await self._end(child, seconds)
            if self._etcd is not None:
                await self._end(self._etcd, ETCD_STOP_SECONDS_MAX)

    async def _tell_of_guests(self) -> None:
        try:
            async with asyncio.timeout(LAST_LOOK_S):
                if not self._is_up or not await self._has_guests():
                    return
        except TimeoutError:
            return
        for one in self._guests.seen.values():
            output.note(
                f"broker {one.id} at {address_of(one.host, one.port)} was started beside these, and loses its etcd: "
                "stop it, too",
                style="yellow",
            )

    async def _end(self, child: ChildProcess, seconds: float) -> None:
        child.ask_to_end()
        if not await child.wait_for_end(seconds):
            output.note(f"{child.name} did not stop within {seconds:.0f} s, and is killed")
            child.kill()
            await child.wait_for_end(seconds)

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals == 1:
            output.note("stopping one broker after the other; Ctrl-C again kills them")
            return
        for child in self._children:
            child.kill()

    @property
    def _children(self) -> list[ChildProcess]:
        return [*self._brokers.values(), *([] if self._etcd is None else [self._etcd])]

    async def _pause(self) -> None:
        await asyncio.sleep(LOOK_EVERY_S)
        if self._signals:
            raise AskedToStop


def _short(path: Path) -> Path:
    """As somebody would type it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
