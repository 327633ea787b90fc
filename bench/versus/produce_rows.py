"""How fast producers write: a base case, and from it one thing changed at a time."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from bench.broker_process import BENCH_FOLDER, MeasuredProcess
from bench.load_client import measure_command
from bench.scale import KB
from bench.versus.arena import Arena, Done
from bench.versus.contender import Contenders
from bench.versus.payload import write_payloads
from bench.versus.perf_tool import PerfTool
from bench.versus.rounds import turns

FAMILY = "Produce"


class ClientKind(StrEnum):
    JAVA = "Java client"
    LIBRDKAFKA = "librdkafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceCase:
    client: ClientKind = ClientKind.JAVA
    message_bytes: int = 100
    # `all` is both clients' default; the Java client is then idempotent.
    acks: str = "all"
    is_large_batches: bool = False
    codec: str = "none"
    partitions: int = 1
    producers: int = 1

    @property
    def name(self) -> str:
        size = "1 KB" if self.message_bytes == KB else f"{self.message_bytes} B"
        parts = [
            self.client.value,
            size,
            f"acks={self.acks}",
            "large batches" if self.is_large_batches else "default batches",
        ]
        if self.codec != "none":
            parts.append(self.codec)
        if self.partitions > 1:
            parts.append(f"{self.partitions} partitions")
        if self.producers > 1:
            parts.append(f"{self.producers} producers")
        return ", ".join(parts)

    @property
    def settings(self) -> dict[str, str]:
        """Under the names that both clients know."""
        settings = {"acks": self.acks}
        if self.is_large_batches:
            settings |= {"batch.size": str(256 * KB), "linger.ms": "20"}
        if self.codec != "none":
            settings["compression.type"] = self.codec
        return settings


BASE = ProduceCase()
LARGE = replace(BASE, is_large_batches=True)
LIBRDKAFKA = replace(BASE, client=ClientKind.LIBRDKAFKA)
QUICK_CASES = (BASE, replace(LARGE, acks="1"), replace(LIBRDKAFKA, is_large_batches=True))
CASES = (
    BASE,
    replace(BASE, acks="1"),
    replace(BASE, acks="0"),
    LARGE,
    replace(LARGE, acks="1"),
    replace(LARGE, acks="0"),
    replace(BASE, message_bytes=KB),
    replace(LARGE, message_bytes=KB),
    replace(BASE, codec="lz4"),
    replace(BASE, codec="zstd"),
    replace(LARGE, codec="lz4"),
    replace(LARGE, codec="zstd"),
    replace(BASE, partitions=6),
    replace(BASE, partitions=100),
    replace(BASE, producers=4),
    replace(LARGE, producers=4),
    LIBRDKAFKA,
    replace(LIBRDKAFKA, acks="1"),
    replace(LIBRDKAFKA, acks="0"),
    replace(LIBRDKAFKA, is_large_batches=True),
    replace(LIBRDKAFKA, message_bytes=KB),
    replace(LIBRDKAFKA, codec="lz4"),
    replace(LIBRDKAFKA, codec="zstd"),
    replace(LIBRDKAFKA, partitions=6),
)


def run(arena: Arena, contenders: Contenders) -> None:
    arena.results.note(
        FAMILY,
        "Default batches are what the client fills by itself: at most 16 KB and 5 ms in the Java client, at most 1 MB "
        "and 5 ms in librdkafka. Large batches: batch.size=256 KB, linger.ms=20.",
    )
    cases = QUICK_CASES if arena.sizes.is_quick else CASES
    with tempfile.TemporaryDirectory(dir=BENCH_FOLDER) as folder:
        producing = _Producing(arena, Path(folder))
        for case in cases:
            for _, contender in turns(contenders.all, rounds=arena.sizes.rounds):
                with arena.topic(contender, partitions=case.partitions) as topic:
                    load = producing.load(case, contender.broker, topic)
                    arena.measure(FAMILY, case.name, contender, load)
    arena.finish_family(FAMILY)


class _Producing:
    def __init__(self, arena: Arena, folder: Path) -> None:
        self._sizes = arena.sizes
        self._tool = PerfTool(
            jars=arena.jars, on_complaint=lambda text: arena.results.note(FAMILY, text)
        )
        self._files = {
            size: write_payloads(folder, size) for size in {case.message_bytes for case in CASES}
        }

    def load(self, case: ProduceCase, broker: MeasuredProcess, topic: str) -> Callable[[], Done]:
        by = self._by_java if case.client is ClientKind.JAVA else self._by_librdkafka
        return lambda: by(case, broker, topic)

    def _by_java(self, case: ProduceCase, broker: MeasuredProcess, topic: str) -> Done:
        messages = self._sizes.produce_messages(case.message_bytes)
        return self._tool.produce(
            broker.address,
            topic,
            messages=messages,
            warm_up=int(messages * self._sizes.warm_up_share),
            payload_file=self._files[case.message_bytes],
            producers=case.producers,
            settings=case.settings,
        )

    def _by_librdkafka(self, case: ProduceCase, broker: MeasuredProcess, topic: str) -> Done:
        settings = [f"{name}={value}" for name, value in case.settings.items()]
        made = measure_command(
            broker,
            "bench.versus.librdkafka_load",
            "produce",
            broker.address,
            topic,
            str(self._sizes.produce_messages(case.message_bytes)),
            str(case.message_bytes),
            *settings,
        )
        return Done(messages=made.messages, messages_per_s=made.messages_per_s)
