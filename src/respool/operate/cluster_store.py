"""Reads the cluster's metadata in etcd as a whole, and changes it by the cluster's own rules, for operations.

An operation is not a broker and has no lease. Its writes are guarded by the revisions that it read, including that of
the controller lease; after a conflict it reads and decides again.
"""

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView, read_view
from respool.model.cluster import NO_CONTROLLER
from respool.model.errors import BrokerIdNotRegistered, RequestError, SettingsError
from respool.model.ids import BrokerId
from respool.model.operator_errors import EtcdUnreachable, NotFound, OperatorError, UsageError
from respool.model.settings import Settings
from respool.model.topic_config import Flush, TopicConfig
from respool.node.etcd import connect_to_etcd, is_refusal
from respool.ports.metadata_store import GuardFailed, MetadataStore, StoreUnavailable

T = TypeVar("T")

# The commands that ask brokers for the sizes of replicas.
ASK_BROKERS = frozenset({"status", "drain", "add", "balance"})
# Leaders change ISRs now and then, which conflicts with a write to many partitions.
TRIES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """The settings that identify a cluster, and the flags that repeat them in commands suggested to the user."""

    settings: Settings
    flags: tuple[str, ...] = ()
    # How to connect to its brokers, whose addresses are in etcd: security, and arguments of `Cluster`.
    security: Security = IN_THE_CLEAR
    client: Mapping[str, Any] = field(default_factory=dict)
    # The flags that repeat this, for commands that ask brokers.
    broker_flags: tuple[str, ...] = ()

    def command(self, *words: object) -> str:
        """A `respool cluster` command for the same cluster, for the user to run."""
        flags = (*self.flags, *self.broker_flags) if words[0] in ASK_BROKERS else self.flags
        return shlex.join(["respool", "cluster", *map(str, words), *flags])

    @property
    def join_flags(self) -> tuple[str, ...]:
        """The flags with which a broker started on another machine finds this cluster."""
        settings, flags = self.settings, list(self.flags)
        if "--config" not in flags:
            # The address may come from this shell's environment, which that broker will not have.
            for name, value in {
                "cluster": settings.metadata_store.cluster,
                "etcd": settings.metadata_store.addresses,
            }.items():
                if f"--{name}" not in flags and not any(
                    one.startswith(f"{name}=") for one in flags
                ):
                    flags = [f"--{name}", value, *flags]
        return tuple(flags)

    def etcd_origin(self, environ: Mapping[str, str]) -> str:
        """The flag, variable or file that set the address of etcd, in order of precedence."""
        etcd = self.settings.metadata_store.addresses
        if "--etcd" in self.flags or any(one.startswith("etcd=") for one in self.flags):
            return f"--etcd {etcd}"
        if "RESPOOL_ETCD" in environ:
            return f"RESPOOL_ETCD={etcd}"
        if "--config" in self.flags:
            return f'etcd = "{etcd}" in {self.flags[self.flags.index("--config") + 1]}'
        return f'etcd = "{etcd}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The cluster's metadata at one revision."""

    cluster: str
    # None if no broker holds the controller lease.
    controller: BrokerId | None
    view: ClusterView

    def check_exists(self) -> None:
        """
        Raises:
            NotFound: no broker has ever registered under this cluster name.
        """
        if not self.view.registry and not self.view.brokers and not self.view.topics:
            raise NotFound(
                f"there is no cluster {self.cluster!r} in this etcd: no broker has ever registered there",
                hint="give the name that its brokers have (their setting `cluster`) with --cluster",
            )


class ClusterStore:
    def __init__(self, store: MetadataStore, address: ClusterAddress) -> None:
        self.address = address
        self._store = store

    async def read(self) -> ClusterSnapshot:
        """Read all metadata.

        Raises:
            EtcdUnreachable: etcd does not answer.
        """
        try:
            values = (await self._store.snapshot("")).values
        except StoreUnavailable as error:
            raise EtcdUnreachable(str(error)) from error
        # The brokers' default of respool.flush is unknown here: assume the weaker guarantee.
        weaker = {"respool.flush": str(Flush.OS)}
        defaults = TopicConfig.parse(weaker, base=self.address.settings.topic_defaults)
        view = read_view(values, defaults=defaults)
        has_controller = view.image.controller != NO_CONTROLLER
        return ClusterSnapshot(
            cluster=self.address.settings.metadata_store.cluster,
            controller=view.image.controller if has_controller else None,
            view=view,
        )

    async def change(self, decide: Callable[[ClusterView], list[GuardedWrite]]) -> ClusterView:
        """Write what `decide` returns; return the view on which it was decided.

        Raises:
            NotFound, OperatorError: the cluster's rules forbid it; nothing was changed.
            EtcdUnreachable: etcd does not answer; the outcome of the write is unknown.
        """
        for _ in range(TRIES_MAX):
            view = (await self.read()).view
            try:
                writes = decide(view)
            except BrokerIdNotRegistered as error:
                raise NotFound(str(error), hint=self._known_brokers(view)) from error
            except RequestError as error:
                raise OperatorError(str(error)) from error
            try:
                for write in writes:
                    await self._store.transact(
                        guards=write.guards, puts=write.puts, deletes=write.deletes
                    )
            except GuardFailed:
                continue
            except StoreUnavailable as error:
                raise EtcdUnreachable(
                    f"{error}; whether it was written is not known", hint="run it again"
                ) from error
            return view
        raise OperatorError(
            f"the cluster changed {TRIES_MAX} times while this was being written", hint="try again"
        )

    def _known_brokers(self, view: ClusterView) -> str:
        known = ", ".join(str(one) for one in sorted(view.registry))
        if not known:
            return "there are none yet"
        return f"there are {known}: {self.address.command('status')}"


def run_on_cluster(address: ClusterAddress, work: Callable[[ClusterStore], Awaitable[T]]) -> T:
    """Connect to the cluster's metadata store, run `work`, and disconnect.

    Raises:
        EtcdUnreachable: etcd does not answer.
        OperatorError: etcd rejects this client.
        UsageError: the settings are invalid.
    """
    return asyncio.run(_run(address, work))


async def _run(address: ClusterAddress, work: Callable[[ClusterStore], Awaitable[T]]) -> T:
    try:
        store = await connect_to_etcd(address.settings)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    except StoreUnavailable as error:
        if is_refusal(error):
            raise OperatorError(str(error)) from error
        origin = address.etcd_origin(os.environ)
        raise EtcdUnreachable(str(error), hint=f"is this where it is? {origin}") from error
    try:
        return await work(ClusterStore(store, address))
    finally:
        await store.close()
