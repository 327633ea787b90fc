"""Watches topics with delays: reads what is committed from all brokers' logs, and checks what waits in the end."""

import asyncio
from collections.abc import Iterable, Sequence

from respool.broker.partitions.partition import Partition
from respool.log.partition_log import ReadSpec
from respool.model.errors import RespoolError
from respool.model.ids import Offset, TopicPartition
from respool.records.batch import RecordBatch
from respool.records.validate import walk_batches
from respool.sim.checks.delay_history import DelayHistory
from respool.sim.checks.delay_log import DelayLog
from respool.sim.machine import Machine

LOOK_EVERY_S = 0.1
# Everything that is due is delivered within this time after the faults have ended.
PATIENCE_S = 60.0


class DelayWatch:
    def __init__(
        self,
        *,
        machines: Sequence[Machine],
        names: Iterable[TopicPartition],
        history: DelayHistory,
    ) -> None:
        self._machines = machines
        self._history = history
        self.logs = {
            name: DelayLog(name, history, latest_ms=self._latest_ms) for name in sorted(names)
        }

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        held = [one for one in self._held() if one.name in self.logs]
        for partition in held:
            log = self.logs[partition.name]
            starts = [one.log_start for one in held if one.name == partition.name]
            if min(starts) > log.end:
                log.skip_to(min(starts))
            log.start = max(log.start, partition.log_start)
            self._take(partition, log)
            log.on_stable(partition.last_stable_offset)

    def _held(self) -> list[Partition]:
        return [
            partition
            for machine in self._machines
            if machine.broker is not None
            for partition in machine.broker.partitions
            if partition.is_online and partition.has_log
        ]

    def _take(self, partition: Partition, log: DelayLog) -> None:
        end = partition.high_watermark
        while partition.log_start <= log.end < end:
            before = log.end
            try:
                data = partition.log.read(
                    ReadSpec(Offset(log.end), max_offset=end, bytes_max=1 << 20)
                )
            except RespoolError:
                # Retention was faster, or the disk fails.
                return
            for at, header in walk_batches(data):
                if header.base_offset >= log.end:
                    log.take(RecordBatch(header, data[at : at + header.size]))
            if log.end == before:
                return

    def _latest_ms(self) -> int:
        return max(machine.clock.latest_ms for machine in self._machines)

    # -- in the end --------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """All faults have ended, and producers have finished: let everything become due, and be delivered."""
        await self._check_pending("before all is due")
        latest_ms = max(
            (
                due_ms
                for log in self.logs.values()
                for one in log.records.values()
                for due_ms in one.due_times
            ),
            default=0,
        )
        for machine in self._machines:
            machine.clock.skew_ms += max(0, latest_ms + 1_000 - machine.clock.now_ms())
        await self._check_pending("when all was due", is_due=True)
        self.look()
        for log in self.logs.values():
            log.check()

    async def _check_pending(self, when: str, *, is_due: bool = False) -> None:
        """D5: leaders wait for what their logs say, a moment after they are fed."""
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        while (wrong := self._wrongly_pending(is_due=is_due)) is not None:
            if asyncio.get_running_loop().time() > until_s:
                self._history.violate("D5", f"{when}: {wrong}")
                return
            await asyncio.sleep(0.25)

    def _wrongly_pending(self, *, is_due: bool) -> str | None:
        self.look()
        leaders = {one.name: one for one in self._held() if one.is_leading}
        for name, log in self.logs.items():
            partition = leaders.get(name)
            if partition is None:
                return f"{name} has no leader"
            if log.has_gap and not is_due:
                continue
            pending = self._pending_count(partition)
            # Those that were cancelled count until their time.
            least, most = (0, 0) if is_due else log.waiting_counts()
            if any(one.carried_to for one in log.records.values()):
                # One that a replica dropped before it learned that it was carried is not counted for a while.
                least = 0
            if not least <= pending <= most:
                return f"the leader of {name} waits for {pending} records, in its log are {least} to {most}"
        return None

    def _pending_count(self, partition: Partition) -> int:
        for machine in self._machines:
            broker = machine.broker
            if broker is not None and partition in list(broker.partitions):
                return broker.deliveries.pending_count(partition)
        return 0
