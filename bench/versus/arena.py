"""What a family of rows is given to work with, and how one cell is measured: load, CPU and memory of the broker."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console

from bench.broker_process import MemoryWatch
from bench.versus.contender import Contender
from bench.versus.kafka_jars import KafkaJars
from bench.versus.results import Results
from bench.versus.row import Unit
from bench.versus.sizes import Sizes
from bench.versus.topics import delete_topics
from bench.warm_memory import WarmMemory

MILLION = 1e6
MEMORY = "Memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a load did."""

    messages: int
    # Without its warm-up, where it has one; so not just messages over seconds.
    messages_per_s: float


class Arena:
    def __init__(
        self, *, jars: KafkaJars, sizes: Sizes, results: Results, console: Console
    ) -> None:
        self.jars = jars
        self.sizes = sizes
        self.results = results
        self._console = console
        self._topics = 0
        # Bytes, by family and contender.
        self._memory_peaks: dict[str, dict[str, int]] = {}

    def progress(self, text: str) -> None:
        self._console.print(f"  {text}", style="dim", markup=False, highlight=False)

    def new_topic_name(self) -> str:
        self._topics += 1
        return f"bench-{os.getpid()}-{self._topics}"

    @contextmanager
    def topic(self, contender: Contender, *, partitions: int = 1) -> Iterator[str]:
        """A fresh one, and gone at the end together with its bytes, so that no turn sees data of another."""
        name = self.new_topic_name()
        contender.create_topic(name, partitions=partitions)
        try:
            yield name
        finally:
            self.remove_topic(contender, name)

    def remove_topic(self, contender: Contender, name: str) -> None:
        """Nothing of it waits to be written when the next turn begins."""
        if contender.broker.is_running:
            contender.broker.forget_cached()
            delete_topics(contender.broker.address, [name])

    def measure(
        self, family: str, name: str, contender: Contender, load: Callable[[], Done]
    ) -> Done:
        """Run a load against a broker, and keep its rate, the broker's CPU for it and the broker's memory."""
        self.progress(f"{family}: {name}: {contender.name}")
        broker = contender.broker
        with WarmMemory(3 * self.sizes.produce_bytes) as memory:
            memory.refill()
            before = broker.cpu()
            with MemoryWatch(broker) as watch, memory.released_during(broker.written_bytes):
                done = load()
            spent = broker.cpu() - before
        per_million = spent.total / done.messages * MILLION
        self.results.add(family, name, Unit.MESSAGES_PER_S, contender.name, done.messages_per_s)
        self.results.add(
            f"{family}: broker CPU", name, Unit.CPU_S_PER_MILLION, contender.name, per_million
        )
        peaks = self._memory_peaks.setdefault(family, {})
        peaks[contender.name] = max(peaks.get(contender.name, 0), watch.resident_peak)
        return done

    def finish_family(self, family: str) -> None:
        """Its rows are measured: tell the most memory that brokers took meanwhile."""
        for name, resident in self._memory_peaks.pop(family, {}).items():
            row = f"resident, largest during: {family}"
            self.results.add(MEMORY, row, Unit.MEGABYTES, name, resident / 1e6)
