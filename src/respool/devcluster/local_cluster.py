"""A cluster on this machine: starts etcd and brokers as child processes, watches them, and stops them in order."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from respool.devcluster.broker_registry import GuestBrokers, is_removed, read_entry, registered
from respool.devcluster.child_process import ChildProcess
from respool.devcluster.cluster_plan import BrokerPlan, ClusterPlan
from respool.devcluster.etcd_server import EtcdMissing, EtcdServer, find_etcd
from respool.drivers.folder_lock import FolderLock
from respool.model.addresses import format_address, parse_address
from respool.model.cluster import BrokerEndpoint, RegistryEntry
from respool.model.errors import SettingsError, StorageError
from respool.model.ids import BrokerId
from respool.model.operator_errors import EtcdUnreachable, OperatorError, UsageError
from respool.node.etcd import connect_to_etcd, is_refusal
from respool.ports.metadata_store import MetadataStore, StoreUnavailable

# -P: a folder named respool in the working directory must not be imported instead of our package.
SERVE = [sys.executable, "-P", "-m", "respool.cli", "serve"]
POLL_S = 0.2
# Brokers that have not registered after this time are reported.
REGISTRATION_S_MAX = 20.0
ETCD_START_SECONDS_MAX = 60.0
# How often etcd is started on other ports because another process took its own first.
ETCD_STARTS_MAX = 5
# In addition to the time that a broker itself may take to stop.
STOP_GRACE_S = 20.0
GUEST_CHECK_S_MAX = 2.0
ETCD_STOP_SECONDS_MAX = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    id: int
    address: str
    pid: int
    data: Path
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedBroker:
    """A broker that ended while the cluster runs, and the arguments to restart it."""

    id: int
    entry: RegistryEntry
    # Flags of `respool serve`, except those that all brokers share.
    serve_flags: Mapping[str, object]
    # No other broker runs: etcd ends with the last one.
    was_last: bool


class ClusterEvents(Protocol):
    """Events that a local cluster reports while it runs."""

    def on_removed(self, broker: int) -> None:
        """The broker was removed from the cluster earlier and is not started."""

    def on_slow_start(self, child: ChildProcess) -> None:
        """The broker has not registered within the usual time."""

    def on_up(self, brokers: list[RunningBroker]) -> None:
        """All brokers have registered."""

    def on_left_out(self, broker: int) -> None:
        """The broker has data in the folder and is not started."""

    def on_ended(self, child: ChildProcess, *, is_etcd: bool) -> None:
        """A child process ended by itself."""

    def on_broker_ended(self, broker: EndedBroker) -> None:
        """Follows `on_ended` of a broker, with the arguments to restart it."""

    def on_guests_only(self) -> None:
        """All of our brokers have ended; guests started by the user still run."""

    def on_guest_loses_etcd(self, guest: BrokerEndpoint) -> None:
        """The cluster stops while a guest started by the user still runs."""

    def on_stop(self) -> None:
        """The brokers are stopped one after the other."""

    def on_kill(self, child: ChildProcess, seconds: float) -> None:
        """A child process did not stop within this time and is killed."""


# Opens a context in which stop signals call this function.
StopSignals = Callable[[Callable[[], None]], AbstractContextManager[None]]


def run_local_cluster(
    plan: ClusterPlan, events: ClusterEvents, *, starts_etcd: bool, stop_signals: StopSignals
) -> bool:
    """Run until stopped, or until no broker is left; return True if it was killed instead of stopped cleanly.

    Raises:
        EtcdMissing: no etcd address is given, and etcd is not installed.
        OperatorError: the folder is in use, a process does not start, or no broker is left.
    """
    if starts_etcd and find_etcd() is None:
        raise EtcdMissing
    cluster = LocalCluster(plan, events, starts_etcd=starts_etcd)

    async def run() -> None:
        with stop_signals(cluster.stop):
            await cluster.run()

    try:
        with FolderLock(str(plan.folder)):
            asyncio.run(run())
    except StorageError as error:
        raise OperatorError(str(error), hint="choose another folder with --data") from error
    return cluster.was_killed


class _Stopped(Exception):
    """The cluster was asked to stop while it waited."""


class LocalCluster:
    def __init__(self, plan: ClusterPlan, events: ClusterEvents, *, starts_etcd: bool) -> None:
        self._plan = plan
        self._events = events
        self._starts_etcd = starts_etcd
        self._etcd: EtcdServer | None = None
        self._etcd_starts = 0
        self._brokers: dict[int, ChildProcess] = {}
        self._addresses: dict[BrokerId, str] = {}
        self._guests = GuestBrokers()
        self._is_up = False
        self._stops = 0

    @property
    def was_killed(self) -> bool:
        return self._stops > 1

    async def run(self) -> None:
        """
        Raises:
            OperatorError: a process does not start, or no broker is left.
        """
        try:
            await self._start()
            await self._watch()
        except _Stopped:
            pass
        finally:
            await self._stop()

    def stop(self) -> None:
        """Stop one broker after the other; a second call kills all of them."""
        self._stops += 1
        if self._stops == 1:
            self._events.on_stop()
            return
        for child in self._children:
            child.kill()

    # -- starting ----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        plan = self._plan
        said_before = plan.file.read_bytes() if plan.file.exists() else None
        if plan.security is not None:
            try:
                plan.security.make()
            except SettingsError as error:
                raise OperatorError(f"--secure: {error}") from error
        if self._starts_etcd:
            self._start_etcd(before=plan.etcd_before())
        else:
            plan.write_file()
        try:
            await self._start_all()
        except BaseException:
            if said_before is not None:
                # Brokers of the last run may still use this file and the etcd that it names.
                plan.file.write_bytes(said_before)
            raise

    def _start_etcd(self, *, before: str = "") -> None:
        folder = self._plan.folder
        self._etcd = EtcdServer(folder / "etcd", log=folder / "etcd.log", before=before)
        self._etcd_starts += 1
        self._plan = self._plan.with_etcd(self._etcd.address)
        self._plan.write_file()

    async def _start_all(self) -> None:
        store = await self._connect()
        try:
            plan = self._plan = await self._without_removed(store)
            # Brokers of a run that was killed stay registered until their leases expire.
            before = {one.epoch for one in (await registered(store)).values()}
            for broker in plan.brokers:
                self._brokers[broker.id] = self._start_broker(broker)
            endpoints = await self._wait_until_registered(store, before)
            self._guests.exclude(endpoints.values())
            self._is_up = True
            self._report_up(endpoints)
            for number in self._plan.left_out:
                if not await is_removed(store, number, or_unknown=True):
                    self._events.on_left_out(number)
        except StoreUnavailable as error:
            raise EtcdUnreachable(f"etcd does not answer any more: {error}") from error
        finally:
            await store.close()

    async def _without_removed(self, store: MetadataStore) -> ClusterPlan:
        """Leave out brokers that were removed from the cluster: they could not register."""
        plan = self._plan
        removed = [one.id for one in plan.brokers if await is_removed(store, one.id)]
        if not removed:
            return plan
        for number in removed:
            self._events.on_removed(number)
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
        """Connect to etcd, which takes a moment to start."""
        deadline = asyncio.get_running_loop().time() + ETCD_START_SECONDS_MAX
        while True:
            if self._etcd is not None:
                # Before connecting: another process's etcd may answer on the port that ours did not get.
                self._restart_etcd_without_port(self._etcd)
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
            await self._pause()

    def _restart_etcd_without_port(self, etcd: EtcdServer) -> None:
        """Start etcd on other ports if it lost one of its own. No broker knows its address yet.

        Raises:
            OperatorError: it ended for another reason, or too often.
        """
        if etcd.lost_its_port and self._etcd_starts < ETCD_STARTS_MAX:
            self._start_etcd()
        else:
            self._check_started(etcd)

    async def _wait_until_registered(
        self, store: MetadataStore, before: set[int]
    ) -> dict[BrokerId, BrokerEndpoint]:
        deadline = asyncio.get_running_loop().time() + REGISTRATION_S_MAX
        is_reported = False
        while True:
            found = await registered(store)
            ours = {one: found[BrokerId(one)] for one in self._brokers if one in found}
            missing = [one for one in self._brokers if one not in ours or ours[one].epoch in before]
            if not missing:
                return {BrokerId(one): endpoint for one, endpoint in ours.items()}
            for number in missing:
                self._check_started(self._brokers[number])
            if not is_reported and asyncio.get_running_loop().time() > deadline:
                is_reported = True
                for number in missing:
                    self._events.on_slow_start(self._brokers[number])
            await self._pause()

    def _check_started(self, child: ChildProcess) -> None:
        if not child.is_running:
            raise OperatorError(
                f"{child.name} did not start, it {child.how_and_why_it_ended}",
                hint=f"its log: {child.log}",
            )

    # -- running -----------------------------------------------------------------------------------------------------

    def _report_up(self, endpoints: Mapping[BrokerId, BrokerEndpoint]) -> None:
        addresses = {one.id: format_address(one.host, one.port) for one in endpoints.values()}
        self._addresses |= addresses
        if self._plan.security is not None:
            in_order = [addresses[BrokerId(one.id)] for one in self._plan.brokers]
            self._plan.security.write_addresses(in_order)
        self._events.on_up(
            [
                RunningBroker(
                    id=one.id,
                    address=addresses[BrokerId(one.id)],
                    pid=self._brokers[one.id].pid,
                    data=one.data,
                    log=one.log,
                )
                for one in self._plan.brokers
            ]
        )

    async def _watch(self) -> None:
        """Report child processes that end, until neither our brokers nor guests are left."""
        reported: set[str] = set()
        has_only_guests = False
        while not has_only_guests or await self._has_guests():
            for child in self._children:
                if not child.is_running and child.name not in reported:
                    reported.add(child.name)
                    await self._report_ended(child)
            if not has_only_guests and not any(one.is_running for one in self._brokers.values()):
                has_only_guests = True
                if await self._has_guests():
                    self._events.on_guests_only()
            await self._pause()
        raise OperatorError("no broker is left", hint=f"their logs are in {self._plan.folder}")

    async def _has_guests(self) -> bool:
        if self._etcd is None or not self._etcd.is_running:
            return False
        own = [number for number, child in self._brokers.items() if child.is_running]
        return await self._guests.are_there(self._plan.settings, own=own)

    async def _report_ended(self, child: ChildProcess) -> None:
        self._events.on_ended(child, is_etcd=child is self._etcd)
        if child is self._etcd:
            return
        number = next(one for one, broker in self._brokers.items() if broker is child)
        entry = await read_entry(self._plan.settings, number)
        (broker,) = (one for one in self._plan.brokers if one.id == number)
        # Even with port 0 it must listen on its previous port, which clients know.
        host, _ = parse_address("listen", broker.listen)
        _, port = parse_address("advertised", self._addresses[BrokerId(number)])
        are_others = any(one.is_running for one in self._brokers.values())
        ended = EndedBroker(
            id=number,
            entry=entry,
            serve_flags={**broker.own_flags, "listen": format_address(host, port)},
            was_last=not are_others and not await self._has_guests(),
        )
        self._events.on_broker_ended(ended)

    # -- stopping ----------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        """Stop one broker after the other, so that the rest take over its partitions; etcd last."""
        settings = self._plan.settings
        seconds = (
            settings.stop_grace_ms + settings.membership.handover_max_ms
        ) / 1000 + STOP_GRACE_S
        try:
            await self._report_guests()
        finally:
            for child in self._brokers.values():
                await self._end(child, seconds)
            if self._etcd is not None:
                await self._end(self._etcd, ETCD_STOP_SECONDS_MAX)

    async def _report_guests(self) -> None:
        try:
            async with asyncio.timeout(GUEST_CHECK_S_MAX):
                if not self._is_up or not await self._has_guests():
                    return
        except TimeoutError:
            return
        for one in self._guests.seen.values():
            self._events.on_guest_loses_etcd(one)

    async def _end(self, child: ChildProcess, seconds: float) -> None:
        child.ask_to_end()
        if not await child.wait_for_end(seconds):
            self._events.on_kill(child, seconds)
            child.kill()
            await child.wait_for_end(seconds)

    @property
    def _children(self) -> list[ChildProcess]:
        return [*self._brokers.values(), *([] if self._etcd is None else [self._etcd])]

    async def _pause(self) -> None:
        await asyncio.sleep(POLL_S)
        if self._stops:
            raise _Stopped
