"""Simulated readers of a topic with delays: they see what is not hidden, as stock clients do."""

from respool.model.delays.delay_headers import HIDING_HEADERS
from respool.model.ids import TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.build import NewRecord
from respool.sim.clients.consumers import SimConsumer
from respool.sim.clients.sim_client import OFFSET_OUT_OF_RANGE, OK, RETRIABLE
from respool.wire.api_table import Api

EARLIEST = -2


class DelayReader(SimConsumer):
    """Reads from the log start on, and sometimes again."""

    async def work(self) -> None:
        positions = dict.fromkeys(self.names, 0)
        while not self.is_winding_down:
            name = self.rng.choice(self.names)
            try:
                position, _, _ = await self.read_on(name, positions[name])
            except PeerUnreachable:
                await self.pause()
                continue
            is_back = self.rng.random() < 0.03
            positions[name] = self.rng.randint(0, position) if is_back else position
            await self.pause(150)

    async def read_on(
        self, name: TopicPartition, position: int
    ) -> tuple[int, dict[int, bytes], bool]:
        """Fetch once; return the next position, what is visible by offset, and whether that is the end.

        Raises:
            PeerUnreachable: there was no reply.
        """
        polled = await self.poll(name, position, wait_ms=self.rng.choice((0, 100, 500)))
        if polled.code == OFFSET_OUT_OF_RANGE:
            # Retention deletes what was read, and what was not.
            start = await self.start_of(name)
            return position if start is None else start, {}, False
        if polled.code != OK:
            if polled.code not in RETRIABLE:
                self.unexpected(f"a fetch of {name}", polled.code)
            await self.pause()
            return position, {}, False
        for offset, record in polled.records:
            self._check(name, offset, record)
        seen = {offset: record.value or b"" for offset, record in polled.records}
        end = polled.stable_offset if self.is_committed else polled.high_watermark
        return polled.next_offset, seen, polled.next_offset >= end

    def _check(self, name: TopicPartition, offset: int, record: NewRecord) -> None:
        self.history.counts["delay topics: records read"] += 1
        if hiding := [one for one, _ in record.headers if one in HIDING_HEADERS]:
            self._violate("D2", name, f"{record.value!r} at {offset} is hidden: it has {hiding}")

    async def start_of(self, name: TopicPartition) -> int | None:
        """The log start; None: ask again."""
        asked = {"partition_index": name.partition, "current_leader_epoch": -1}
        reply = await self.ask_leader(
            name,
            Api.LIST_OFFSETS,
            7,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": name.topic, "partitions": [{**asked, "timestamp": EARLIEST}]}],
        )
        (answer,) = reply.topics[0].partitions
        code = int(answer.error_code)
        self.on_code(code, leader=name)
        return int(answer.offset) if code == OK else None

    def check_place(
        self, name: TopicPartition, header: BatchHeader, expected: int, *, is_first: bool
    ) -> None:
        """There are gaps where records are hidden."""
        if header.base_offset < expected and not is_first:
            self._violate("D1", name, f"{header.base_offset} comes after {expected}")

    def on_beyond_end(self, name: TopicPartition, batch: RecordBatch, limit: int) -> None:
        self._violate("D2", name, f"{batch.header.last_offset} is passed, the end is {limit}")
