"""`python -m bench`: run the row families that are asked for, one after the other, and print their tables."""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bench import (
    arrow,
    cluster,
    columnar,
    compaction,
    delays,
    fetch,
    flood,
    floor,
    groups,
    growth,
    idle,
    latency,
    librdkafka,
    produce,
    profiling,
    rights,
    scrape,
    shrink,
    spark,
    transactions,
)
from bench.broker_process import BrokerFailed, free_bytes
from bench.delays import MESSAGES_PER_BATCH
from bench.load_client import LoadFailed
from bench.report import Report
from bench.requests import RequestFailed
from bench.scale import DEFAULT, FULL, GB, KB, QUICK, Scale, size_text

FAMILIES: dict[str, Callable[[Scale, Report], None]] = {
    "floor": floor.run,
    "produce": produce.run,
    "fetch": fetch.run,
    "librdkafka": librdkafka.run,
    "growth": growth.run,
    "idle": idle.run,
    "flood": flood.run,
    "latency": latency.run,
    "compaction": compaction.run,
    "delays": delays.run,
    "columnar": columnar.run,
    "arrow": arrow.run,
    "groups": groups.run,
    "transactions": transactions.run,
    "cluster": cluster.run,
    "scrape": scrape.run,
    "rights": rights.run,
    "shrink": shrink.run,
    "spark": spark.run,
}
# Beyond the largest single cell: what the page cache and other programs want at the same time.
FREE_BYTES_MIN = 8 * GB


def main() -> None:
    options = _parser().parse_args()
    scale = QUICK if options.quick else FULL if options.full else DEFAULT
    if options.delayed is not None:
        scale = replace(scale, delayed_messages=options.delayed)
    report = Report(settings={"scale": scale.name, "seconds a figure": scale.seconds})
    if free_bytes() < FREE_BYTES_MIN:
        raise SystemExit(
            f"bench wants {size_text(FREE_BYTES_MIN)} of free disk, there are {size_text(free_bytes())}"
        )
    report.print_head()
    began = time.perf_counter()
    failed: list[str] = []
    if options.profile:
        profiling.run(report, _profiled_load(scale, options))
    else:
        failed = [name for name in options.only or FAMILIES if not _run(name, scale, report)]
    report.progress(f"took {time.perf_counter() - began:.0f} s")
    if options.json is not None:
        report.write_json(options.json)
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}")


def _run(name: str, scale: Scale, report: Report) -> bool:
    """Measure one family; if it fails, report why and measure the others."""
    try:
        FAMILIES[name](scale, report)
    except (BrokerFailed, LoadFailed, RequestFailed, OSError) as error:
        report.progress(f"{name} FAILED: {error}\n" + "\n".join(getattr(error, "__notes__", [])))
        return False
    return True


def _profiled_load(scale: Scale, options: argparse.Namespace) -> profiling.Load:
    batch_bytes = options.batch_kb * KB
    if options.profile == "fetch":
        return profiling.fetch_load(scale, batch_bytes=batch_bytes)
    if options.profile == "transactions":
        return profiling.transaction_load(scale)
    return profiling.produce_load(scale, batch_bytes=batch_bytes, flush=options.flush)


def _delayed_messages(text: str) -> int:
    count = int(text)
    if count < 10 * MESSAGES_PER_BATCH or count % (10 * MESSAGES_PER_BATCH):
        raise argparse.ArgumentTypeError(f"a multiple of {10 * MESSAGES_PER_BATCH:,}, not {text}")
    return count


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Figures and ratios of a running broker; nothing is asserted.",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=FAMILIES,
        metavar="NAME",
        help=f"one of {', '.join(FAMILIES)}; may be repeated",
    )
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="fewer and shorter figures")
    sizes.add_argument("--full", action="store_true", help="longer figures, and a log of 20 GB")
    parser.add_argument(
        "--delayed",
        type=_delayed_messages,
        metavar="COUNT",
        help="how many messages wait in `delays`, instead of 10 million; 100 million take some minutes and 10 GB",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument(
        "--profile",
        nargs="?",
        const="produce",
        choices=("produce", "fetch", "transactions"),
        help="instead: where the broker's time goes",
    )
    parser.add_argument(
        "--batch-kb", type=int, default=16, metavar="KB", help="with --profile: the batches' size"
    )
    parser.add_argument(
        "--flush", choices=("always", "os"), default="os", help="with --profile: the topic's flush"
    )
    return parser


if __name__ == "__main__":
    main()
