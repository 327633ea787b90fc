"""The cluster's metadata for a command: looked at as a whole, and changed by what the cluster's own rules decide.

A command is no broker: it has no lease, and its writes carry the guards of what it saw, the controller's seat among
them. Where somebody was faster, it looks and decides again.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from respool.cli.cluster_address import ClusterAddress
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView, read_view
from respool.model.cluster import NO_CONTROLLER
from respool.model.errors import BrokerIdNotRegistered, RequestError, SettingsError
from respool.model.ids import BrokerId
from respool.model.operator_errors import NotFound, OperatorError, Unreachable, UsageError
from respool.model.topic_config import Flush
from respool.node.etcd import connect_to_etcd, is_refusal
from respool.ports.metadata_store import GuardFailed, MetadataStore, StoreUnavailable

T = TypeVar("T")

# A leader changes an ISR now and then, which a write of many partitions runs into.
TRIES_MAX = 20


class EtcdUnreachable(Unreachable):
    """etcd does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """All of the cluster, as it was at one moment."""

    cluster: str
    # Who decides; None while nobody does.
    controller: BrokerId | None
    view: ClusterView

    def check_is_there(self) -> None:
        """Of a cluster that was never there nothing can be said, least of all that it is well.

        Raises:
            NotFound: no broker has ever registered under this name.
        """
        if not self.view.registry and not self.view.brokers and not self.view.topics:
            raise NotFound(
                f"there is no cluster {self.cluster!r} in this etcd: no broker has ever registered there",
                hint="give the name that its brokers have (their setting `cluster`) with --cluster",
            )


class ClusterStore:
    def __init__(self, store: MetadataStore, address: ClusterAddress) -> None:
        self._store = store
        self._address = address
        self._settings = address.settings

    async def look(self) -> Sight:
        """Read everything.

        Raises:
            EtcdUnreachable: etcd does not answer.
        """
        try:
            values = (await self._store.snapshot("")).values
        except StoreUnavailable as error:
            raise EtcdUnreachable(str(error)) from error
        # The brokers' default of respool.flush is not known here: report what may be lost.
        defaults = replace(self._settings.topic_defaults, respool_flush=Flush.OS)
        view = read_view(values, defaults=defaults)
        has_controller = view.image.controller != NO_CONTROLLER
        return Sight(
            cluster=self._settings.metadata_store.cluster,
            controller=view.image.controller if has_controller else None,
            view=view,
        )

    async def change(self, decide: Callable[[ClusterView], list[GuardedWrite]]) -> ClusterView:
        """Write what is decided; return what it was decided on.

        Raises:
            NotFound, OperatorError: the cluster's rules forbid it; nothing was changed.
            EtcdUnreachable: etcd does not answer, and whether it was written is unknown.
        """
        for _ in range(TRIES_MAX):
            view = (await self.look()).view
            try:
                writes = decide(view)
            except BrokerIdNotRegistered as error:
                raise NotFound(str(error), hint=self._brokers_there_are(view)) from error
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

    def _brokers_there_are(self, view: ClusterView) -> str:
        known = ", ".join(str(one) for one in sorted(view.registry))
        if not known:
            return "there are none yet"
        return f"there are {known}: {self._address.command('status')}"


def run(address: ClusterAddress, work: Callable[[ClusterStore], Awaitable[T]]) -> T:
    """Do the work with the cluster's store.

    Raises:
        EtcdUnreachable: etcd does not answer.
        OperatorError: it answers, but not to us.
        UsageError: the settings cannot work.
    """
    # What is noteworthy about etcd stands in the brokers' logs; here it would stand between the lines of a table.
    logging.basicConfig(level=logging.ERROR)
    return asyncio.run(_run(address, work))


async def _run(address: ClusterAddress, work: Callable[[ClusterStore], Awaitable[T]]) -> T:
    try:
        store = await connect_to_etcd(address.settings)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    except StoreUnavailable as error:
        if is_refusal(error):
            raise OperatorError(str(error)) from error
        said = address.where_etcd_was_said(os.environ)
        raise EtcdUnreachable(str(error), hint=f"is this where it is? {said}") from error
    try:
        return await work(ClusterStore(store, address))
    finally:
        await store.close()
