"""The broker process: drivers for all ports, a listener, signal handling."""

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import uvloop

from respool import __version__
from respool.broker.broker import Broker
from respool.broker.dispatch import handle
from respool.broker.handlers.support.registration import Handler
from respool.broker.membership.broker_lifecycle import NotAdmitted
from respool.broker.world import World
from respool.drivers.allocator import keep_freed_memory
from respool.drivers.audit_file import open_audit
from respool.drivers.folder_lock import FolderLock
from respool.drivers.local_disk import LocalDisk, ThreadedLocalReader
from respool.drivers.prometheus_metrics import PrometheusMetrics
from respool.drivers.python_log_levels import PythonLogLevels
from respool.drivers.sqlite_store import SqliteStore
from respool.drivers.system_calls import raise_file_limit
from respool.drivers.system_sources import SystemClock, SystemRandomSource
from respool.drivers.tcp_peers import TcpPeers
from respool.drivers.thread_offload import ThreadOffload
from respool.local_reads.local_file_read import this_host
from respool.log.folder.data_folder import RUN_NAME, DataFolder
from respool.log.folder.folder_identity import IDENTITY_NAME, FolderIdentity, refuse_kafkas_folder
from respool.log.folder.partition_folders import PartitionFolders
from respool.model.errors import DataFolderMismatch, RespoolError
from respool.model.security.scram_credential import SALT_BYTES
from respool.model.settings import Settings
from respool.node.config import unknown_variables
from respool.node.etcd import connect_to_etcd
from respool.node.folder_access import make_data_folder
from respool.node.log_format import set_up_logging
from respool.node.metrics_endpoint import serve_metrics
from respool.node.peer_security import peer_security_of
from respool.node.record_scanner import ScannerOnDemand
from respool.node.secrets import identity_keys_of, load_certificates, token_secret_of
from respool.node.secure_start import bootstrap_login
from respool.object_stores.open_store import open_store, read_options
from respool.ports.clock import Clock
from respool.ports.disk import Disk
from respool.ports.metadata_store import MetadataStore, StoreUnavailable
from respool.ports.object_store import ObjectStore
from respool.ports.offload import Offload
from respool.server.gauges import LoopDelay
from respool.server.listener import Listener
from respool.server.pages import Health

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

EXIT_BROKEN_INVARIANT = 70
# The exit code of commands that cannot reach a broker.
EXIT_UNREACHABLE = 4
# Python's default is 700, which a few requests reach.
COLLECT_AFTER_OBJECTS = 20_000
METADATA_FILE = "metadata.sqlite"


class Threads(Offload, Protocol):
    """Runs blocking work in threads while the node runs."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Drivers:
    """The drivers of a node. A broker in tests (`respool.testing`) replaces some of them."""

    clock: Clock = field(default_factory=SystemClock)
    # Takes the path of the data folder.
    disk: Callable[[str], Disk] = LocalDisk
    # Takes the number of threads.
    offload: Callable[[int], Threads] = ThreadOffload
    # Handles requests.
    handle: Handler = handle
    # Called with the address of the metrics and health endpoint.
    on_metrics_listening: Callable[[str, int], None] = lambda _host, _port: None


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; return the process's exit code."""
    set_up_logging(level=settings.log_output.level, log_format=settings.log_output.format)
    for warning in (*settings.renamed, *unknown_variables(os.environ)):
        logger.warning("%s", warning)
    for note in settings.accepted:
        logger.info("%s", note)
    raise_file_limit()
    keep_freed_memory()
    settings = replace(settings, data=os.path.abspath(settings.data))
    try:
        exit_code: int = uvloop.run(_serve(settings))
    except (RespoolError, StoreUnavailable, OSError) as error:
        _report_failed_start(_describe(error, settings), settings)
        return (
            EXIT_UNREACHABLE if settings.metadata_store.addresses and _is_unreachable(error) else 1
        )
    return exit_code


def _report_failed_start(reason: str, settings: Settings) -> None:
    """Report why the broker ends: a sentence on standard error, or a log line if log_format = json."""
    if settings.log_output.format == "json":
        logger.critical("%s", reason)
    else:
        print(f"respool: {reason}", file=sys.stderr)  # noqa: T201


async def _serve(settings: Settings) -> int:
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)

    def on_serving(broker: Broker, listener: Listener) -> None:
        collect_rarely()
        _say_that_it_serves(broker, *listener.address)

    return await serve(settings, asked_to_stop, on_serving=on_serving)


async def serve(
    settings: Settings,
    asked_to_stop: asyncio.Event,
    *,
    on_serving: Callable[[Broker, Listener], None],
    drivers: Drivers | None = None,
) -> int:
    """Serve until asked to stop, and return the exit code. The caller owns the loop, the signals and the log.

    If cancelled, it closes everything without a clean shutdown, as after a crash.
    """
    drivers = drivers or Drivers()
    with ExitStack() as stack:
        make_data_folder(settings)
        lock = FolderLock(settings.data)
        stack.callback(lock.release)
        metrics, health = PrometheusMetrics(), Health()
        metrics_certificate = await serve_metrics(
            settings, metrics, health, stack=stack, on_listening=drivers.on_metrics_listening
        )
        disk = drivers.disk(settings.data)
        opening = _open_store(settings, disk, drivers, stack)
        store = await _unless_stopped(opening, asked_to_stop)
        if store is None:
            return 0
        offload = drivers.offload(settings.storage.io_threads)
        stack.callback(offload.close)
        identity_keys = identity_keys_of(settings)
        world = World(
            clock=drivers.clock,
            disk=disk,
            store=store,
            offload=offload,
            metrics=metrics,
            rng=SystemRandomSource(),
            scanner=ScannerOnDemand(),
            peers=(
                TcpPeers(security=peer_security_of(settings))
                if settings.metadata_store.addresses
                else None
            ),
            local_reader=_local_reader(settings, stack),
            log_levels=PythonLogLevels(),
            identity_keys=identity_keys,
            token_secret=token_secret_of(settings),
            objects=_open_archive(settings),
            audit=open_audit(settings.access.audit_file, stack),
        )
        try:
            if not settings.metadata_store.addresses and not (await store.snapshot("")).revision:
                refuse_partitions_of_no_topic(disk, "a new and empty")
            broker = Broker(settings, world)
            certificates = load_certificates(settings, metrics)
            listener = Listener(
                broker,
                handle=drivers.handle,
                tls={name: one.context for name, one in certificates.items()},
            )
            for one in (*certificates.values(), metrics_certificate):
                if one is not None:
                    broker.spawn(one.keep_watching())
            if identity_keys is not None:
                broker.spawn(identity_keys.keep_fetching())
            return await _serve_until_stopped(broker, listener, health, asked_to_stop, on_serving)
        finally:
            if world.peers is not None:
                await world.peers.close()
            if world.objects is not None:
                await world.objects.close()
            await store.close()


async def _open_store(
    settings: Settings, disk: Disk, drivers: Drivers, stack: ExitStack
) -> MetadataStore:
    """Open the metadata store of the cluster, or that of a single broker."""
    refuse_kafkas_folder(disk)
    if settings.metadata_store.addresses:
        refuse_folder_of_a_broker_alone(disk)
        return await connect_to_etcd(settings, patience_ms=settings.metadata_store.wait_ms)
    # Checked before the file is created: an operator who restores the old file must not find a new one in its place.
    refuse_folder_of_a_cluster(disk)
    if not disk.exists(METADATA_FILE):
        refuse_partitions_of_no_topic(disk, "no")
    writer = drivers.offload(1)
    stack.callback(writer.close)
    path = os.path.join(settings.data, METADATA_FILE)
    return SqliteStore(path, clock=drivers.clock, offload=writer)


async def _serve_until_stopped(
    broker: Broker,
    listener: Listener,
    health: Health,
    asked_to_stop: asyncio.Event,
    on_serving: Callable[[Broker, Listener], None],
) -> int:
    health.on_starting(broker)
    login = bootstrap_login(broker.settings)
    await broker.start()
    if login is not None:
        salt = broker.logins.random_bytes(SALT_BYTES)
        await broker.login_changes.ensure_user(login.username, login.password, salt=salt)
    if broker.settings.metrics.address is not None:
        broker.spawn(broker.metrics.keep_refreshing())
        broker.spawn(LoopDelay(broker.world.metrics).run())
    try:
        await listener.start()
        broker.on_listening(listener.addresses)
        broker.failed.add_done_callback(lambda _: asked_to_stop.set())
        if broker.member is not None:
            health.on_joining()
            await _unless_stopped(broker.join_cluster(), asked_to_stop)
    except (OSError, NotAdmitted):
        # No request was served: the next start must find the folder unchanged, not as after a crash.
        await listener.stop()
        await broker.stop()
        raise
    if not asked_to_stop.is_set():
        health.on_serving()
        on_serving(broker, listener)
    await asked_to_stop.wait()
    health.on_stopping()
    if broker.failed.done():
        why = broker.failed.result()
        if not isinstance(why, NotAdmitted):
            # No clean shutdown: the next start must recover the logs.
            return EXIT_BROKEN_INVARIANT
        # The broker was removed from the cluster while it was unreachable, so it has no registration to end.
        await listener.stop()
        await broker.stop()
        raise why
    logger.info("stopping: finishing requests in progress")
    await broker.leave_leadership()
    await listener.stop()
    await broker.stop()
    await broker.leave_cluster()
    logger.info("stopped cleanly")
    return 0


def _say_that_it_serves(broker: Broker, host: str, port: int) -> None:
    logger.info(
        "respool %s, broker %d: %d partitions in %s, opened %s",
        __version__,
        broker.id,
        len(broker.partitions),
        broker.settings.data,
        _when_opened(broker.folder),
    )
    client = broker.settings.listeners[0]
    if (advertised := client.advertised_for(host, port)) != (host, port):
        logger.info("advertised to clients as %s:%d", *advertised)
    # Scripts and tests wait for this line, the only one on standard output.
    print(f"respool listening on {host}:{port}", flush=True)  # noqa: T201


def _when_opened(folder: DataFolder) -> str:
    if folder.is_new:
        return "for the first time"
    return "after a clean stop" if folder.was_clean else "after a crash"


def _local_reader(settings: Settings, stack: ExitStack) -> ThreadedLocalReader | None:
    host = this_host()
    if not host or not settings.fetch.local_reads:
        return None
    local_reader = ThreadedLocalReader(host)
    stack.callback(local_reader.close)
    return local_reader


def _open_archive(settings: Settings) -> ObjectStore | None:
    """
    Raises:
        ArchiveRefused: the address cannot be used, or a library is missing.
    """
    archive = settings.archive
    if not archive.address:
        return None
    return open_store(
        archive.address,
        endpoint=archive.endpoint,
        region=archive.region,
        part_bytes=archive.part_bytes,
        options=read_options(archive.credentials_file),
    )


async def _unless_stopped(
    work: Coroutine[Any, Any, Result], asked_to_stop: asyncio.Event
) -> Result | None:
    """Return the result of the work, or None if the broker is asked to stop first: the store may be down for long."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(asked_to_stop.wait())
    try:
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for one in (working, stopping):
            one.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def _describe(error: Exception, settings: Settings) -> str:
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"something listens on {settings.network.listen} already; choose another address with --listen"
    if isinstance(error, socket.gaierror):
        return f"{settings.network.listen} cannot be listened on: {error.strerror}; choose another with --listen"
    if number == errno.EADDRNOTAVAIL:
        return f"{settings.network.listen} is not an address of this machine; choose another with --listen"
    if number in (errno.EEXIST, errno.ENOTDIR):
        return f"the data folder {settings.data} is not a folder; choose another with --data"
    # OSErrors of sockets have no file name.
    if isinstance(error, OSError) and error.filename is not None:
        return f"the data folder {settings.data} cannot be made: {error.strerror}; choose another with --data"
    return str(error)


def _is_unreachable(error: Exception) -> bool:
    """True if etcd does not reply; False if it replies and rejects this broker."""
    if not isinstance(error, StoreUnavailable):
        return False
    from respool.drivers.etcd_failures import EtcdRefused

    return not isinstance(error, EtcdRefused)


def collect_rarely() -> None:
    """Tune the garbage collector: nearly all objects are freed by reference counting, and a collection visits every
    young object. Objects created at start-up live on, so they are frozen.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER_OBJECTS, 20, 20)


# A single broker keeps its topics in a file in the data folder, a cluster keeps them in etcd. A broker started in the
# wrong mode would not know the topics of the partitions in its folder: so it is refused before anything is written.


def refuse_folder_of_a_broker_alone(disk: Disk) -> None:
    """
    Raises:
        DataFolderMismatch: a single broker keeps its topics here.
    """
    if disk.exists(METADATA_FILE):
        raise DataFolderMismatch(
            f"the data folder is that of a broker alone: it holds {METADATA_FILE}, and its topics are not known "
            "to the cluster; give the broker a folder of its own with --data"
        )


def refuse_folder_of_a_cluster(disk: Disk) -> None:
    """
    Raises:
        DataFolderMismatch: a broker of a cluster has used the folder, and no single broker since.
    """
    if not disk.exists(RUN_NAME) or disk.exists(METADATA_FILE):
        return
    written = disk.read_file(IDENTITY_NAME)
    broker = f"broker {FolderIdentity.decode(written).broker_id}" if written else "a broker"
    raise DataFolderMismatch(
        f"the data folder is that of {broker} of a cluster, whose etcd knows its topics: say where that is with --etcd "
        "and --cluster, or with --config; or, to serve alone, use another folder. Nothing was changed"
    )


def refuse_partitions_of_no_topic(disk: Disk, which: str) -> None:
    """Refuse a folder with partitions but without topics: every partition would count as deleted.

    Raises:
        DataFolderMismatch: the folder has partitions.
    """
    names = PartitionFolders(disk).names()
    if names:
        raise DataFolderMismatch(
            f"the data folder holds partitions, such as {min(names)}, but {which} {METADATA_FILE}, which says what "
            f"topics there are: restore that file, with {METADATA_FILE}-wal if there is one; or, to start empty, use "
            "another folder. Nothing was changed"
        )
