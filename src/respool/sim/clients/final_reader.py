"""New readers that read everything after the faults have ended, with a time limit."""

from collections.abc import Sequence

from respool.model.ids import TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.sim.checks.checker import FinalReads
from respool.sim.checks.history import History
from respool.sim.clients.consumers import OffsetWatcher, SimConsumer
from respool.sim.clients.sim_client import OK
from respool.sim.clients.view_consumer import SimView, ViewConsumer
from respool.sim.clients.workload import Workload, WorkloadFactory
from respool.sim.runtime.sim_loop import SimLoop


class FinalReader:
    def __init__(
        self,
        *,
        loop: SimLoop,
        history: History,
        factory: WorkloadFactory,
        names: Sequence[TopicPartition],
        patience_s: float,
    ) -> None:
        """`patience_s`: open transactions must be ended within this time."""
        self._loop = loop
        self._history = history
        self._factory = factory
        self._names = names
        self.patience_s = patience_s

    async def read_all(self, workload: Workload) -> FinalReads:
        final = FinalReads()
        for is_committed, reads in ((False, final.uncommitted), (True, final.committed)):
            reader = self._factory.new_client(
                SimConsumer, f"final-{is_committed}", names=self._names, is_committed=is_committed
            )
            reads.update(await reader.process.spawn(self.read_to_the_end(reader)))
        groups = {one.group: one.name for one in workload.transactional}
        watcher = self._factory.new_client(
            OffsetWatcher, "final-watcher", groups=groups, position_of=self._names[0]
        )
        final.group_offsets = await watcher.process.spawn(self._look_at_offsets(watcher, groups))
        return final

    async def read_views(self, views: Sequence[SimView]) -> None:
        """V3: a reader of a view comes to its parent's end, and so does what its group commits."""
        for is_committed in (False, True):
            reader = self._factory.new_client(
                ViewConsumer,
                f"final-views-{is_committed}",
                views=views,
                names=self._names,
                is_committed=is_committed,
            )
            await reader.process.spawn(self._read_views_to_the_end(reader))

    async def _read_views_to_the_end(self, reader: ViewConsumer) -> None:
        for name in reader.names:
            position = 0
            until_s = self._loop.time() + self.patience_s
            polled = None
            while polled is None or position != polled.high_watermark:
                if self._loop.time() > until_s:
                    self._history.violate("V3", f"{name} does not come to its end from {position}")
                    break
                try:
                    polled = await reader.poll(name, position, wait_ms=100)
                except PeerUnreachable as error:
                    self._history.violate("V3", f"{name} cannot be read: {error}")
                    break
                if polled.code == OK:
                    position = polled.next_offset
                else:
                    polled = None
                    await reader.pause()
            commit = reader.commits.get(name, 0)
            if polled is not None and commit != polled.high_watermark:
                self._history.violate(
                    "V3", f"{name}: a group commits {commit}, the end is {polled.high_watermark}"
                )
        await reader.close()

    async def _look_at_offsets(
        self, watcher: OffsetWatcher, groups: dict[str, str]
    ) -> dict[str, int]:
        offsets: dict[str, int] = {}
        for group, producer in groups.items():
            until_s = self._loop.time() + self.patience_s
            while producer not in offsets and self._loop.time() < until_s:
                try:
                    offset = await watcher.look(group, is_stable=True)
                except PeerUnreachable:
                    offset = None
                if offset is not None:
                    offsets[producer] = offset
                else:
                    await watcher.pause()
            if producer not in offsets:
                self._history.violate("D", f"the offsets of {group} cannot be read")
        await watcher.close()
        return offsets

    async def read_to_the_end(self, reader: SimConsumer) -> dict[TopicPartition, dict[int, bytes]]:
        """Read everything; no transaction may stay open."""
        reads: dict[TopicPartition, dict[int, bytes]] = {}
        for name in self._names:
            seen = reads.setdefault(name, {})
            position = 0
            until_s = self._loop.time() + self.patience_s
            while True:
                try:
                    polled = await reader.poll(name, position)
                except PeerUnreachable as error:
                    self._history.violate("D", f"{name} cannot be read: {error}")
                    break
                if polled.code == OK:
                    for offset, record in polled.records:
                        self._history.on_read(
                            name, offset, record, is_committed=reader.is_committed
                        )
                        seen[offset] = record.value or b""
                    position = polled.next_offset
                    if position == polled.high_watermark == polled.stable_offset:
                        break
                if self._loop.time() > until_s:
                    self._history.violate(
                        "D",
                        f"{name} does not come to its end: {polled.code}, {position}, "
                        f"{polled.high_watermark}, {polled.stable_offset}",
                    )
                    break
                if polled.code or not polled.batches:
                    await reader.pause()
        await reader.close()
        return reads
