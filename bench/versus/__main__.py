"""`python -m bench.versus`: Respool beside Apache Kafka, in one run.

Exit codes: 0 all was measured, 1 a family of rows was not, 3 there is no Kafka to compare with.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from confluent_kafka import KafkaException

from bench.broker_process import BENCH_FOLDER, ROOT, BrokerFailed, free_bytes
from bench.load_client import LoadFailed
from bench.requests import RequestFailed
from bench.scale import GB, size_text
from bench.versus import (
    columnar_rows,
    consume_rows,
    delay_rows,
    idle_rows,
    latency_rows,
    mixed_rows,
    other_rows,
    produce_rows,
    python_rows,
    retry_rows,
    seek_rows,
    start_rows,
    topic_rows,
    view_rows,
)
from bench.versus.arena import Arena
from bench.versus.contender import Contenders, started
from bench.versus.head import head_of
from bench.versus.kafka_jars import KafkaUnavailable, find_kafka
from bench.versus.page import write_page
from bench.versus.perf_output import UnknownOutput
from bench.versus.results import Results
from bench.versus.sizes import FULL, QUICK
from bench.versus.terminal import console_for, show
from bench.versus.warm_up import warm_up

# In this order.
FAMILIES: dict[str, Callable[[Arena, Contenders], None]] = {
    "idle": idle_rows.run,
    "produce": produce_rows.run,
    "consume": consume_rows.run,
    "mixed": mixed_rows.run,
    "latency": latency_rows.run,
    "topics": topic_rows.run,
    "seek": seek_rows.run,
    "views": view_rows.run,
    "delays": delay_rows.run,
    "retries": retry_rows.run,
    "python": python_rows.run,
    "columnar": columnar_rows.run,
    "others": other_rows.run,
}
# Of brokers that did nothing yet.
COLD = {"idle"}
START = "start"
NAMES = (*FAMILIES, START)
# Their clients bound them more than brokers do; `--only` has them also when it is quick.
NOT_QUICK = {"python", "others"}
EXIT_NOT_MEASURED = 1
EXIT_NO_KAFKA = 3
DOCS_FOLDER = ROOT / "docs" / "benchmarks"
QUICK_FOLDER = BENCH_FOLDER / "versus"
SO_FAR = BENCH_FOLDER / "versus-so-far.json"
FAILURES = (BrokerFailed, LoadFailed, RequestFailed, UnknownOutput, KafkaException, OSError)


def main() -> None:
    options = _parser().parse_args()
    # Contexts end their processes then, as they do after Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    if options.render is not None:
        _tell(Results.read(options.render), options.out or options.render.parent)
        return
    progress = console_for(is_stderr=True)
    try:
        jars = find_kafka(version=options.kafka, is_fresh=options.fetch)
    except KafkaUnavailable as error:
        progress.print(f"Nothing was measured: {error}", markup=False)
        sys.exit(EXIT_NO_KAFKA)
    sizes = QUICK if options.quick else FULL
    if free_bytes() < sizes.disk_bytes_min:
        sys.exit(
            f"this wants {size_text(sizes.disk_bytes_min)} of free disk, there are {free_bytes() / GB:.1f} GB"
        )
    results = Results(head=dict(head_of(jars, sizes, _command(options))))
    arena = Arena(jars=jars, sizes=sizes, results=results, console=progress)
    folder = options.out or (QUICK_FOLDER if options.quick else DOCS_FOLDER)
    began = time.perf_counter()
    usual = [name for name in NAMES if not (options.quick and name in NOT_QUICK)]
    failed = _run_all(arena, options.only or usual)
    results.head["took"] = f"{(time.perf_counter() - began) / 60:.1f} minutes"
    _tell(results, folder)
    if failed:
        progress.print(f"not measured: {', '.join(failed)}", style="red")
        sys.exit(EXIT_NOT_MEASURED)


def _run_all(arena: Arena, names: Sequence[str]) -> list[str]:
    """Measure what is asked for, and return what could not be."""
    wanted = [name for name in FAMILIES if name in names]
    failed: list[str] = []
    while wanted:
        # After a failure brokers are restarted: the old ones may be broken, or gone.
        done = _tried(arena, "brokers", lambda: _run_until_failure(arena, wanted, failed))
        if not done:
            return [*failed, *wanted]
    if START in names and not _tried(arena, START, lambda: start_rows.run(arena)):
        failed.append(START)
    return failed


def _run_until_failure(arena: Arena, wanted: list[str], failed: list[str]) -> None:
    """Take families from those wanted, on one pair of brokers; a failure is the last."""
    with started(arena.jars) as contenders:
        is_warm = False
        while wanted:
            name = wanted.pop(0)
            if name not in COLD and not is_warm:
                is_warm = _tried(arena, "warm-up", partial(warm_up, arena, contenders))
            if not _tried(arena, name, partial(FAMILIES[name], arena, contenders)):
                failed.append(name)
                return


def _tried(arena: Arena, name: str, run: Callable[[], None]) -> bool:
    """True if it succeeded; a failure is reported, and the others are measured all the same."""
    began = time.perf_counter()
    try:
        run()
    except FAILURES as error:
        said = "\n".join([str(error), *getattr(error, "__notes__", [])])
        arena.progress(f"{name} FAILED: {said}")
        arena.results.note(name, f"not all was measured: {str(error).splitlines()[0]}")
        return False
    finally:
        arena.progress(f"{name} took {time.perf_counter() - began:.0f} s")
        # A run that is interrupted has not been for nothing: `--render` makes a page of it.
        arena.results.write(SO_FAR)
    return True


def _tell(results: Results, folder: Path) -> None:
    console = console_for()
    for name, value in results.head.items():
        console.print(f"{name:<20} {value}", markup=False)
    show(results, console)
    path = write_page(results, folder)
    console.print(f"\nwritten to {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}")


def _command(options: argparse.Namespace) -> str:
    """As somebody else would type it."""
    words = ["make bench-kafka"]
    words += ["QUICK=1"] if options.quick else []
    words += [f"ONLY='{' '.join(options.only)}'"] if options.only else []
    words += [f"KAFKA={options.kafka}"] if options.kafka else []
    return " ".join(words)


def _end(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.versus",
        description="Respool beside Apache Kafka on this machine; nothing is asserted.",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"fewer rows and shorter ones, without {' and '.join(sorted(NOT_QUICK))}; a few minutes",
    )
    parser.add_argument(
        "--only", nargs="+", choices=NAMES, metavar="NAME", help=f"some of {', '.join(NAMES)}"
    )
    parser.add_argument("--kafka", metavar="VERSION", help="this version instead of the newest 4.x")
    parser.add_argument(
        "--fetch", action="store_true", help="look for a newer Kafka than the cache has"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="where the page goes; docs/benchmarks, or with --quick .bench/versus",
    )
    parser.add_argument(
        "--render",
        type=Path,
        metavar="FILE.json",
        help="measure nothing: the page of these figures",
    )
    return parser


if __name__ == "__main__":
    main()
