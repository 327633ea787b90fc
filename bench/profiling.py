"""Where the broker's time goes under load: its Python functions by cProfile, its machine code by perf if there.

cProfile makes every call dearer, so a function that calls many small ones looks worse than it is: read the shares, not
the seconds. perf costs nothing, but sees all of Python as one interpreter.
"""

import cProfile
import pstats
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.broker_process import BENCH_FOLDER, BrokerProcess
from bench.fetch import read
from bench.filling import fill
from bench.load_client import Measured, measure, measure_command
from bench.produce import ACKS_ALL, TOPIC, produce_spec
from bench.report import Column, Report, Table, percent_fine
from bench.requests import Client
from bench.scale import MB, Scale, size_text
from bench.transactions import small_transactions
from bench.warm_memory import WarmMemory

FUNCTIONS_SHOWN = 40
SYMBOLS_SHOWN = 30
SECONDS_MIN = 3.0
SERVE_PROFILED = "bench.profiling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the broker does while it is looked at."""

    title: str
    prepare: Callable[[BrokerProcess], Callable[[], Measured]]


def produce_load(scale: Scale, *, batch_bytes: int, flush: str) -> Load:
    def prepare(broker: BrokerProcess) -> Callable[[], Measured]:
        with Client(broker.host, broker.port) as client:
            client.create_topic(TOPIC, settings={"respool.flush": flush})
        spec = produce_spec(
            scale,
            broker,
            batch_bytes=batch_bytes,
            acks=ACKS_ALL,
            connections=1,
            seconds=max(SECONDS_MIN, scale.seconds),
            # What is not counted must not be looked at either.
            warm_up_seconds=0.0,
        )

        def go() -> Measured:
            with WarmMemory(spec.bytes_max) as memory:
                memory.refill()
                return measure(broker, spec, memory=memory)

        return go

    return Load(title=f"produce {size_text(batch_bytes)}, flush={flush}", prepare=prepare)


def fetch_load(scale: Scale, *, batch_bytes: int) -> Load:
    def prepare(broker: BrokerProcess) -> Callable[[], Measured]:
        topic = fill(broker, log_bytes=scale.fetch_log_bytes, batch_bytes=batch_bytes)
        seconds = max(SECONDS_MIN, scale.seconds)
        return lambda: read(broker, topic, fetch_bytes=1 * MB, seconds=seconds, warm_up_seconds=0.0)

    return Load(title=f"fetch 1 MB of {size_text(batch_bytes)} batches", prepare=prepare)


def transaction_load(scale: Scale) -> Load:
    """A request counted is a transaction."""

    def prepare(broker: BrokerProcess) -> Callable[[], Measured]:
        spec = small_transactions(broker, producers=64, seconds=max(SECONDS_MIN, scale.seconds))
        return lambda: measure_command(broker, "bench.transaction_load", spec.text())

    return Load(title="small transactions of 64 producers", prepare=prepare)


def run(report: Report, load: Load) -> None:
    report.progress(f"profile: {load.title}")
    BENCH_FOLDER.mkdir(exist_ok=True)
    report.add(_function_table(load))
    if shutil.which("perf") is None:
        report.progress("perf is not installed: no profile of the machine code")
        return
    report.add(_symbol_table(load))


def _function_table(load: Load) -> Table:
    dump = BENCH_FOLDER / "profile.pstats"
    command = (sys.executable, "-m", SERVE_PROFILED, str(dump))
    with BrokerProcess(command=command) as broker:
        go = load.prepare(broker)
        broker.send_signal(signal.SIGUSR1)
        one = go()
        broker.send_signal(signal.SIGUSR2)
        broker.stop()
    stats = pstats.Stats(str(dump)).stats  # type: ignore[attr-defined]
    dump.unlink()
    own_time_all = sum(own for _, _, own, _, _ in stats.values())
    table = Table(
        "profile",
        f"cProfile of the broker's loop: {load.title}",
        (
            Column("function", "function"),
            Column("share", "own time", percent_fine),
            Column("own_us", "own us a request", lambda value: f"{value:.2f}"),
            Column("cumulative_us", "with callees", lambda value: f"{value:.2f}"),
            Column("calls", "calls a request", lambda value: f"{value:.2f}"),
        ),
    )
    rows = sorted(stats.items(), key=lambda item: -item[1][2])
    for (file, line, name), (_, calls, own, cumulative, _) in rows[:FUNCTIONS_SHOWN]:
        place = f"{_short(file)}:{line} " if line else ""
        table.rows.append(
            {
                "function": f"{place}{name}",
                "share": own / own_time_all,
                "own_us": own / one.requests * 1e6,
                "cumulative_us": cumulative / one.requests * 1e6,
                "calls": calls / one.requests,
            }
        )
    table.notes.append(
        "The event loop, its system calls for sockets included, is the time of `run` in runners.py or of no function."
    )
    table.notes.append(f"{one.requests:,} requests.")
    return table


def _short(file: str) -> str:
    path = Path(file)
    for mark in ("respool", "site-packages"):
        if mark in path.parts:
            after = len(path.parts) - 1 - path.parts[::-1].index(mark)
            return "/".join(path.parts[after + 1 :])
    return path.name


def _symbol_table(load: Load) -> Table:
    data = BENCH_FOLDER / "perf.data"
    with BrokerProcess() as broker:
        go = load.prepare(broker)
        perf = subprocess.Popen(
            ["perf", "record", "-q", "-F", "999", "-p", str(broker.pid), "-o", str(data)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            one = go()
        finally:
            perf.terminate()
            perf.wait()
    symbols = _perf_report(data, "comm,dso,symbol")
    libraries = _perf_report(data, "dso")
    data.unlink(missing_ok=True)
    table = Table(
        "profile-native",
        f"perf of all the broker's threads: {load.title}",
        (Column("share", "share"), Column("symbol", "thread, library, symbol")),
    )
    for share, symbol in symbols[:SYMBOLS_SHOWN]:
        table.rows.append({"share": share, "symbol": symbol})
    table.notes.append(", ".join(f"{library} {share}" for share, library in libraries[:6]))
    table.notes.append(
        f"{one.cpu_s_per_request * 1e6:.1f} us of broker CPU a request, not slowed by cProfile; "
        f"{one.messages_per_cpu_s / 1e6:.2f} M messages, {one.bytes_per_cpu_s / 1e9:.2f} GB per CPU-s."
    )
    return table


def _perf_report(data: Path, sort: str) -> list[tuple[str, str]]:
    """Shares and what they are of, largest first."""
    listing = subprocess.run(
        ["perf", "report", "-i", str(data), "--stdio", "-q", "--sort", sort],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = []
    for line in listing.splitlines():
        share, _, what = line.strip().partition(" ")
        if share.endswith("%"):
            # perf has no name for what is neither a file nor the kernel's image it can see.
            found.append((share, " ".join(what.split()).rstrip(" -") or "kernel"))
    return found


def main() -> None:
    """Serve under cProfile; the first argument is where to write it, the others are `respool`'s."""
    dump = sys.argv.pop(1)
    from respool.cli.main import main as respool

    profile = cProfile.Profile()
    # The start is no part of the picture: the parent says when to look.
    signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
    signal.signal(signal.SIGUSR2, lambda *_: profile.disable())
    try:
        respool()
    finally:
        profile.dump_stats(dump)


if __name__ == "__main__":
    main()
