"""Views in simulated runs: what each shows, and consumers that read them as stock clients do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from respool.model.ids import TopicPartition
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.build import NewRecord
from respool.sim.checks.history import ViewRead
from respool.sim.clients.consumers import AssignedConsumer, Polled
from respool.sim.clients.sim_client import OK

Shows = Callable[[NewRecord], bool]

# What the simulated producers send has keys k0 to k4, and the producer's name in a header.
_CONDITIONS: Sequence[tuple[str, Shows]] = (
    ("key = 'k1'", lambda one: one.key == b"k1"),
    ("key in ('k1', 'k3', 'k9')", lambda one: one.key in (b"k1", b"k3")),
    ("of = 'txn-0'", lambda one: ("of", b"txn-0") in one.headers),
    (
        "of != 'idem-0' and key starts 'k' and key != 'k2'",
        lambda one: ("of", b"idem-0") not in one.headers and one.key != b"k2",
    ),
    (
        "of in ('txn-1', 'plain-0') and key = 'k4'",
        lambda one: (
            one.key == b"k4"
            and any(header in one.headers for header in (("of", b"txn-1"), ("of", b"plain-0")))
        ),
    ),
    ("exists(of)", lambda one: bool(one.headers)),
)


@dataclass(frozen=True, slots=True)
class SimView:
    parent: str
    where: str
    shows: Shows

    @property
    def name(self) -> str:
        return f"{self.parent}.v.some"


def draw_view(parent: str, rng: Random) -> SimView:
    where, shows = rng.choice(_CONDITIONS)
    return SimView(parent, where, shows)


class ViewConsumer(AssignedConsumer):
    """Reads views from the beginning, and sometimes seeks back.

    The offsets it passes are recorded, so that the checker can compare them with the records it should have seen.
    """

    def __init__(self, name: str, *, views: Sequence[SimView], **consumer: Any) -> None:
        parents = consumer.pop("names")
        by_parent = {one.parent: one for one in views}
        super().__init__(
            name,
            names=[TopicPartition(by_parent[one.topic].name, one.partition) for one in parents],
            **consumer,
        )
        self._views = {one.name: one for one in views}
        # What each partition's group would commit: after the last record, control records included, as librdkafka does.
        self.commits: dict[TopicPartition, int] = {}

    def parent_of(self, name: TopicPartition) -> TopicPartition:
        return TopicPartition(self._views[name.topic].parent, name.partition)

    async def poll(
        self, name: TopicPartition, position: int, *, wait_ms: int = 0, bytes_max: int = 1 << 20
    ) -> Polled:
        polled = await super().poll(name, position, wait_ms=wait_ms, bytes_max=bytes_max)
        if polled.code != OK:
            return polled
        view, parent = self._views[name.topic], self.parent_of(name)
        for offset, record in polled.records:
            self.history.on_read(parent, offset, record, is_committed=self.is_committed)
            if not view.shows(record):
                self._violate("V1", name, f"{record.value!r} at {offset} is not {view.where}")
        self.history.view_reads.append(
            ViewRead(
                view.name,
                parent,
                view.shows,
                self.is_committed,
                position,
                polled.next_offset,
                tuple(offset for offset, _ in polled.records),
            )
        )
        self.history.counts["polls of views"] += 1
        for batch in polled.batches:
            if batch.header.record_count:
                self.commits[name] = batch.header.last_offset + 1
        return polled

    def on_record(self, name: TopicPartition, offset: int, record: NewRecord) -> None:
        """It was recorded when it was polled."""

    def check_place(
        self, name: TopicPartition, header: BatchHeader, expected: int, *, is_first: bool
    ) -> None:
        """There are gaps where nothing is shown."""
        if header.base_offset < expected and not is_first:
            self._violate("V1", name, f"{header.base_offset} comes after {expected}")

    def on_beyond_end(self, name: TopicPartition, batch: RecordBatch, limit: int) -> None:
        self._violate("V2", name, f"{batch.header.last_offset} is passed, the end is {limit}")
