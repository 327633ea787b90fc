"""The clients of a simulated run, drawn and created from its seed."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from respool.model.ids import BrokerId, TopicPartition
from respool.ports.clock import Clock
from respool.sim.checks.history import GroupView, History
from respool.sim.clients.consumers import AssignedConsumer, OffsetWatcher
from respool.sim.clients.group_member import GroupMember
from respool.sim.clients.producers import ACKS_ALL, IdempotentProducer, PlainProducer
from respool.sim.clients.sim_client import SimClient
from respool.sim.clients.transactional_producer import SimTransactionalProducer
from respool.sim.clients.view_consumer import SimView, ViewConsumer
from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import rng_of

GROUP = "riders"
TRANSACTION_TIMEOUT_MS = 15_000

Kind = TypeVar("Kind", bound=SimClient)


@dataclass(slots=True)
class Workload:
    """The clients of one run."""

    clients: list[SimClient] = field(default_factory=list)
    transactional: list[SimTransactionalProducer] = field(default_factory=list)
    groups: dict[str, GroupView] = field(default_factory=dict)


class WorkloadFactory:
    def __init__(
        self,
        *,
        loop: SimLoop,
        clock: Clock,
        history: History,
        brokers: Mapping[BrokerId, tuple[str, int]],
        seed: int,
        racks: Sequence[str] = (),
    ) -> None:
        self.loop = loop
        self._clock = clock
        self.history = history
        self._brokers = brokers
        self._seed = seed
        self._rng = rng_of("cast", seed)
        # The racks of the brokers; clients may be in them too.
        self._racks = [one for one in dict.fromkeys(racks) if one]

    def with_history(self, history: History) -> Self:
        """For clients that record elsewhere what they do."""
        made = copy(self)
        made.history = history
        return made

    def new_client(self, kind: type[Kind], name: str, **more: Any) -> Kind:
        return kind(
            name,
            loop=self.loop,
            clock=self._clock,
            rng=rng_of(name, self._seed),
            **{"history": self.history, "brokers": self._brokers, **more},
        )

    def draw_workload(
        self,
        names: Sequence[TopicPartition],
        *,
        is_leader_enough: bool,
        views: Sequence[SimView] = (),
    ) -> Workload:
        """Draw the clients that use these partitions; half of the readers read the views, if there are any."""
        rng, workload = self._rng, Workload()
        for number in range(rng.randint(0, 2)):
            workload.clients.append(
                self.new_client(IdempotentProducer, f"idem-{number}", names=names)
            )
        for number in range(rng.randint(0, 2)):
            workload.clients.append(
                self.new_client(
                    PlainProducer,
                    f"plain-{number}",
                    names=names,
                    acks=rng.choice((1, ACKS_ALL)),
                    is_leader_enough=is_leader_enough,
                )
            )
        for number in range(rng.randint(0, 3)):
            producer = self.new_client(
                SimTransactionalProducer,
                f"txn-{number}",
                names=names,
                version=rng.choice((1, 2)),
                timeout_ms=TRANSACTION_TIMEOUT_MS,
            )
            workload.clients.append(producer)
            workload.transactional.append(producer)
        if not workload.clients:
            workload.clients.append(self.new_client(IdempotentProducer, "idem-0", names=names))
        for number in range(rng.randint(1, 3)):
            reader: dict[str, Any] = {
                "names": names,
                "is_committed": rng.random() < 0.5,
                "rack": rng.choice(self._racks) if self._racks else "",
            }
            workload.clients.append(self.new_client(AssignedConsumer, f"reader-{number}", **reader))
            if views:
                workload.clients.append(
                    self.new_client(ViewConsumer, f"viewer-{number}", views=views, **reader)
                )
        if workload.transactional:
            groups = {one.group: one.name for one in workload.transactional}
            workload.clients.append(
                self.new_client(OffsetWatcher, "watcher", groups=groups, position_of=names[0])
            )
        if rng.random() < 0.5:
            view = workload.groups[GROUP] = GroupView()
            for number in range(rng.randint(1, 3)):
                workload.clients.append(
                    self.new_client(
                        GroupMember,
                        f"member-{number}",
                        names=names,
                        is_committed=True,
                        group=GROUP,
                        view=view,
                    )
                )
        return workload
