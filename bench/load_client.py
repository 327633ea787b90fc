"""A load client in a process of its own: warms up, says "ready", waits for "go", and then says what it did.

Between "ready" and its answer nothing happens but the load, so the broker's CPU time is read at these two moments.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Protocol, Self, TypeAlias

from bench.broker_process import ROOT, CpuTime
from bench.fetch_load import FetchSpec, run_fetch
from bench.produce_load import ProduceSpec, run_produce
from bench.warm_memory import WarmMemory

Spec: TypeAlias = ProduceSpec | FetchSpec


class LoadFailed(Exception):
    """The load client failed; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the client moved, and what that cost both sides."""

    seconds: float
    requests: int
    messages: int
    # Bytes of record batches, without the frames around them.
    bytes: int
    client_cpu_s: float
    broker_cpu_s: float
    broker_system_s: float

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.seconds

    @property
    def messages_per_cpu_s(self) -> float:
        return self.messages / self.broker_cpu_s

    @property
    def bytes_per_cpu_s(self) -> float:
        return self.bytes / self.broker_cpu_s

    @property
    def cpu_s_per_request(self) -> float:
        return self.broker_cpu_s / self.requests


class Measurable(Protocol):
    """A broker, or several."""

    def cpu(self) -> CpuTime: ...

    def written_bytes(self) -> int: ...


class LoadClient:
    """The parent's side."""

    def __init__(self, *command: str) -> None:
        """`command`: a module that ends up in `announce`, and its arguments."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    @classmethod
    def of(cls, spec: Spec) -> Self:
        kind = "produce" if isinstance(spec, ProduceSpec) else "fetch"
        return cls("bench.load_client", kind, json.dumps(asdict(spec)))

    def wait_until_ready(self) -> None:
        self._read_line("ready")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def wait_for_result(self) -> dict[str, float]:
        result = json.loads(self._read_line("{"))
        self.end()
        assert isinstance(result, dict)
        return result

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read_line(self, expected: str) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(expected):
            self.end()
            raise LoadFailed(line.strip() or "the load client ended without a word")
        return line


def measure(broker: Measurable, spec: Spec, *, memory: WarmMemory | None = None) -> Measured:
    """Run one load against a broker, which finds the warm memory free for its log."""
    if memory is None:
        return _measure(broker, LoadClient.of(spec))
    return _measure(
        broker, LoadClient.of(spec), lambda: memory.released_during(broker.written_bytes)
    )


def measure_command(broker: Measurable, *command: str) -> Measured:
    """The same, with another module as the load client."""
    return _measure(broker, LoadClient(*command))


def _measure(
    broker: Measurable,
    client: LoadClient,
    meanwhile: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Measured:
    try:
        client.wait_until_ready()
        before = broker.cpu()
        with meanwhile():
            client.go()
            result = client.wait_for_result()
            spent = broker.cpu() - before
    finally:
        client.end()
    return measured(result, spent)


def measured(result: dict[str, float], spent: CpuTime) -> Measured:
    return Measured(
        seconds=result["seconds"],
        requests=int(result["requests"]),
        messages=int(result["messages"]),
        bytes=int(result["bytes"]),
        client_cpu_s=result["cpu_s"],
        broker_cpu_s=spent.total,
        broker_system_s=spent.system,
    )


# The client's side.


def main() -> None:
    kind, text = sys.argv[1:]
    fields = json.loads(text)
    if kind == "produce":
        run_produce(ProduceSpec(**fields), announce)
    else:
        run_fetch(FetchSpec(**fields), announce)


def announce() -> Callable[[int, int, int], None]:
    """Say that all is ready, wait for the start, and return what ends the measurement."""
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        sys.exit("no start")
    began, cpu_began = time.perf_counter(), _cpu_seconds()

    def finish(requests: int, messages: int, byte_count: int) -> None:
        result = {
            "seconds": time.perf_counter() - began,
            "cpu_s": _cpu_seconds() - cpu_began,
            "requests": requests,
            "messages": messages,
            "bytes": byte_count,
        }
        print(json.dumps(result), flush=True)

    return finish


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
