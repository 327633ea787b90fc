"""Where the broker's time goes while it appends: its Python functions by cProfile, its machine code by perf if there.

cProfile makes every call dearer, so a function that calls many small ones looks worse than it is: read the shares, not
the seconds. perf costs nothing, but sees all of Python as one interpreter.
"""

import cProfile
import pstats
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from bench.broker_process import BENCH_FOLDER, BrokerProcess
from bench.load_client import measure
from bench.produce import ACKS_ALL, TOPIC
from bench.produce_load import ProduceSpec, window_for
from bench.report import Column, Report, Table, percent_fine
from bench.requests import Client
from bench.scale import MESSAGE_BYTES, Scale, size_text

FUNCTIONS_SHOWN = 40
SYMBOLS_SHOWN = 25
SERVE_PROFILED = "bench.profiling"


def run(
    scale: Scale, report: Report, *, batch_bytes: int, flush: str, acks: int = ACKS_ALL
) -> None:
    title = f"produce {size_text(batch_bytes)}, acks={acks}, flush={flush}"
    report.progress(f"profile of {title}")
    dump = BENCH_FOLDER / "profile.pstats"
    BENCH_FOLDER.mkdir(exist_ok=True)
    command = (sys.executable, "-m", SERVE_PROFILED, str(dump))
    with BrokerProcess(command=command) as broker:
        requests = _load(scale, broker, batch_bytes=batch_bytes, flush=flush, acks=acks)
        broker.stop()
    report.add(_function_table(title, dump, requests))
    dump.unlink()
    if shutil.which("perf") is None:
        report.progress("perf is not installed: no profile of the machine code")
        return
    with BrokerProcess() as broker:
        report.add(
            _symbol_table(scale, title, broker, batch_bytes=batch_bytes, flush=flush, acks=acks)
        )


def _load(scale: Scale, broker: BrokerProcess, *, batch_bytes: int, flush: str, acks: int) -> int:
    with Client(broker.host, broker.port) as client:
        client.create_topic(TOPIC, settings={"respool.flush": flush})
    one = measure(
        broker,
        ProduceSpec(
            host=broker.host,
            port=broker.port,
            topic=TOPIC,
            acks=acks,
            batch_bytes=batch_bytes,
            message_bytes=MESSAGE_BYTES,
            window=window_for(batch_bytes),
            seconds=max(3.0, scale.seconds),
            bytes_max=scale.cell_bytes_max,
        ),
    )
    return one.requests


def _function_table(title: str, dump: Path, requests: int) -> Table:
    stats = pstats.Stats(str(dump)).stats  # type: ignore[attr-defined]
    own_time_all = sum(own for _, _, own, _, _ in stats.values())
    table = Table(
        "profile",
        f"cProfile of the broker's loop: {title}, {requests:,} requests",
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
                "own_us": own / requests * 1e6,
                "cumulative_us": cumulative / requests * 1e6,
                "calls": calls / requests,
            }
        )
    return table


def _short(file: str) -> str:
    path = Path(file)
    for mark in ("respool", "site-packages"):
        if mark in path.parts:
            after = len(path.parts) - 1 - path.parts[::-1].index(mark)
            return "/".join(path.parts[after + 1 :])
    return path.name


def _symbol_table(
    scale: Scale, title: str, broker: BrokerProcess, *, batch_bytes: int, flush: str, acks: int
) -> Table:
    data = BENCH_FOLDER / "perf.data"
    perf = subprocess.Popen(
        ["perf", "record", "-q", "-F", "999", "-p", str(broker.pid), "-o", str(data)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _load(scale, broker, batch_bytes=batch_bytes, flush=flush, acks=acks)
    finally:
        perf.terminate()
        perf.wait()
    listing = subprocess.run(
        ["perf", "report", "-i", str(data), "--stdio", "-q", "--sort", "comm,dso,symbol"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    data.unlink(missing_ok=True)
    table = Table(
        "profile-native",
        f"perf of all the broker's threads: {title}",
        (Column("share", "share"), Column("symbol", "thread, library, symbol")),
    )
    for line in listing.splitlines():
        share, _, symbol = line.strip().partition(" ")
        if share.endswith("%") and len(table.rows) < SYMBOLS_SHOWN:
            table.rows.append({"share": share, "symbol": " ".join(symbol.split())})
    return table


def main() -> None:
    """Serve under cProfile; the first argument is where to write it, the others are `respool`'s."""
    dump = sys.argv.pop(1)
    from respool.cli.main import main as respool

    profile = cProfile.Profile()
    assert threading.current_thread() is threading.main_thread()
    try:
        profile.runcall(respool)
    finally:
        profile.dump_stats(dump)


if __name__ == "__main__":
    main()
