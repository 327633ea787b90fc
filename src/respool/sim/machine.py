"""A simulated machine with a broker: it starts, is killed, loses power, is paused, and starts again.

The broker, its listener and its connections are the real ones. The simulation replaces what is below the ports (disk,
clock, threads, random source, metadata store) and what is below asyncio (time and sockets).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from respool.broker.broker import Broker
from respool.broker.world import World
from respool.drivers.tcp_peers import TcpPeers
from respool.model.errors import RespoolError
from respool.model.ids import BrokerId
from respool.model.settings import Settings
from respool.ports.metadata_store import StoreUnavailable
from respool.server.listener import Listener
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.simulated_disk import SimDisk, SimLocalReader
from respool.sim.net.simulated_network import SimNetwork
from respool.sim.net.simulated_store import SimStore, StoreConditions
from respool.sim.runtime.delayed_offload import DelayedOffload, DiskPace
from respool.sim.runtime.process import Process
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_metrics import SimMetrics
from respool.sim.runtime.simulated_sources import NodeClock, SimRandomSource, rng_of

logger = logging.getLogger(__name__)

PEER_CONNECT_MS_MAX = 2_000
PEER_REQUEST_MS_MAX = 5_000


class Machine:
    def __init__(
        self,
        *,
        loop: SimLoop,
        network: SimNetwork,
        store: SimStore,
        settings: Settings,
        seed: int | str,
        is_in_cluster: bool = False,
        clock_rate: float = 1.0,
        local_reader: SimLocalReader | None = None,
    ) -> None:
        """`local_reader`: other brokers read this machine's files through it."""
        self.settings = settings
        self.id = BrokerId(settings.broker_id)
        self.host = f"broker-{settings.broker_id}"
        self.clock = NodeClock(loop, rate=clock_rate)
        self.pace = DiskPace()
        self.store_conditions = StoreConditions()
        self._local_reader = local_reader
        self._seed = seed
        self.disk = self._new_disk("disk")
        self._disks_taken = 0
        # The machine's own disk, while another disk is mounted in its place.
        self._own_disk: SimDisk | None = None
        if local_reader is not None:
            local_reader.add(self.host, lambda: self.disk)
        # Whether ready tasks of its processes overtake each other.
        self.shuffles_tasks = False
        self.process: Process | None = None
        self.broker: Broker | None = None
        # Why the broker stopped by itself, which it must never do.
        self.failure: BaseException | None = None
        # How many processes could not start because of their disk or the metadata store.
        self.failed_starts = 0
        self.starts = 0
        self._loop = loop
        self._network = network
        self._store = store
        self._is_in_cluster = is_in_cluster
        self._rng = rng_of("machine", seed)
        self._is_disk_cut = False
        self._asked_to_stop = asyncio.Event()
        self._gone = asyncio.Event()

    @property
    def address(self) -> tuple[str, int]:
        return self.settings.network.listen_address

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def is_stopping(self) -> bool:
        return self.is_up and self._asked_to_stop.is_set()

    def start(self) -> None:
        """Start a new process on the disk that the last one left. It takes a while until the broker serves."""
        assert not self.is_up
        self.starts += 1
        self._network.on_host_up(self.host)
        self.disk = self.disk.reopen()
        self.disk.faults.on_cut = lambda: self.cut_power(is_disk_cut=True)
        self.process = self._loop.new_process(f"{self.host}.{self.starts}", host=self.host)
        self.process.shuffles_tasks = self.shuffles_tasks
        self._asked_to_stop = asyncio.Event()
        self._gone = asyncio.Event()
        self.process.spawn(self._serve(self.process), name="serve")

    def kill(self) -> None:
        """kill -9: written data stays, synced or not, and the operating system closes the connections."""
        self._end(power_cut=False)

    def cut_power(self, *, is_disk_cut: bool = False) -> None:
        """Cut the power: unsynced data is lost or kept at random, and peers get no sign that the machine is down."""
        # With `is_disk_cut`, the interrupted disk call is still on the stack and its file half written.
        self._is_disk_cut = is_disk_cut
        self._end(power_cut=True)

    async def stop(self) -> None:
        """Stop cleanly."""
        assert self.process is not None
        self._asked_to_stop.set()
        await self._gone.wait()

    @property
    def is_without_its_disk(self) -> bool:
        return self._own_disk is not None

    def unmount_disk(self) -> None:
        """Replace the disk by an empty one, which the next process finds."""
        assert self._own_disk is None
        self._own_disk = self.disk
        self.replace_disk()

    def mount_disk(self) -> None:
        """Mount the machine's own disk again, for the next process."""
        assert not self.is_up
        assert self._own_disk is not None
        self.disk, self._own_disk = self._own_disk, None
        self.disk.faults.heal()

    def replace_disk(self) -> None:
        """Replace the disk by an empty one for good: its content is lost."""
        assert not self.is_up
        self._disks_taken += 1
        self.disk = self._new_disk(f"disk {self._disks_taken}")

    def pause(self) -> None:
        """SIGSTOP: the process stands still while its clock runs."""
        assert self.process is not None
        self.process.is_paused = True

    def resume(self) -> None:
        if self.process is not None:
            self.process.is_paused = False

    def _new_disk(self, rng: str) -> SimDisk:
        reads_locally = self._local_reader is not None
        return SimDisk(rng_of(rng, self._seed), name=self.host if reads_locally else "")

    def _end(self, *, power_cut: bool) -> None:
        process = self.process
        if process is None or not process.is_alive:
            return
        process.kill()
        self._gone.set()
        self.broker = None
        if power_cut and not self._is_disk_cut:
            self.disk.crash()
        elif power_cut:
            # After the interrupted call has written its torn bytes.
            self._loop.call_soon(self.disk.crash, context=self._loop.world.context)
        else:
            self.disk.kill()
        self._network.on_process_gone(process, power_cut=power_cut)

    async def _serve(self, process: Process) -> None:
        """Do what `node.py` does, without signals."""
        try:
            await self._serve_until_stopped()
        except ProcessGone:
            return
        except (RespoolError, StoreUnavailable) as error:
            self.failed_starts += 1
            logger.warning("%s could not start: %s", process.name, error)
        # False if the process was killed in the middle of a call.
        if process.is_alive:
            self._end(power_cut=False)

    async def _serve_until_stopped(self) -> None:
        store = self._store.client(rng_of(f"store {self.starts}", self._seed))
        store.conditions = self.store_conditions
        offload = DelayedOffload(
            self._rng, threads=self.settings.storage.io_threads, pace=self.pace
        )
        peers = None
        if self._is_in_cluster:
            peers = TcpPeers(
                connect_timeout_ms=PEER_CONNECT_MS_MAX, request_timeout_ms=PEER_REQUEST_MS_MAX
            )
        broker = Broker(
            self.settings,
            World(
                clock=self.clock,
                disk=self.disk,
                store=store,
                offload=offload,
                metrics=SimMetrics(),
                rng=SimRandomSource(f"{self._seed} {self.starts}"),
                peers=peers,
                local_reader=self._local_reader,
            ),
        )
        await broker.start()
        listener = Listener(broker)
        await listener.start()
        broker.on_listening(listener.addresses)
        self.broker = broker
        broker.failed.add_done_callback(lambda _: self._asked_to_stop.set())
        if peers is not None:
            await broker.join_cluster()
        await self._asked_to_stop.wait()
        if broker.failed.done():
            error = broker.failed.result()
            # A disk call that failed because the power is off is not a failure of the broker.
            if not isinstance(error, ProcessGone):
                self.failure = self.failure or error
            return
        if peers is not None:
            await broker.leave_leadership()
        await listener.stop()
        await broker.stop()
        if peers is not None:
            await broker.leave_cluster()
            await peers.close()
        await store.close()


# Something that happens to a machine.
Fault = Callable[[Machine], Coroutine[Any, Any, None]]
