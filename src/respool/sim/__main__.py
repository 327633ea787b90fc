"""`python -m respool.sim`: run seeds on all cores, or replay one.

    python -m respool.sim --seeds 1000            # seeds 0 to 999
    python -m respool.sim --seeds 1000 --first 5000
    python -m respool.sim --seed 4711             # one, with a trace of what happened
    python -m respool.sim --seeds 50 --brokers 3  # as many brokers, whatever the seeds would like

A failing seed is printed with the command that replays it. The exit code says whether there was one.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context

from respool.sim.run import SimReport, simulate

# How many violations of one seed are shown; the first tell the story.
SHOWN_MAX = 5
PROGRESS_EVERY_S = 10.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m respool.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="replay one seed and show what happened")
    parser.add_argument("--brokers", type=int, help="the number of brokers in every seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.brokers)
    return _run(options.first, options.seeds, options.workers, options.brokers)


def _replay(seed: int, brokers: int | None) -> int:
    report = simulate(seed, show=_say, broker_count=brokers)
    _say(
        f"\nseed {seed}: {report.steps} steps, {report.virtual_s:.1f} s, digest {report.digest:016x}"
    )
    _say(f"faults: {_text(report.faults)}")
    _say(f"done:   {_text(report.counts)}")
    _show_violations(report)
    return 1 if report.violations else 0


def _run(first: int, count: int, workers: int, brokers: int | None) -> int:
    begun = said = time.monotonic()
    done = 0
    virtual_s = 0.0
    faults: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    failing: list[int] = []
    clusters = 0
    for report in _reports(first, count, workers, brokers):
        done += 1
        virtual_s += report.virtual_s
        clusters += report.broker_count > 1
        faults += report.faults
        counts += report.counts
        if report.violations:
            failing.append(report.seed)
            more = "" if brokers is None else f" BROKERS={brokers}"
            _say(f"seed {report.seed} FAILS; replay it with: make sim SEED={report.seed}{more}")
            _show_violations(report)
        if time.monotonic() - said > PROGRESS_EVERY_S:
            said = time.monotonic()
            _say(f"{done} of {count} seeds, {len(failing)} failing, {said - begun:.0f} s")
    seconds = time.monotonic() - begun
    _say(
        f"{done} seeds in {seconds:.0f} s, {clusters} of them clusters: {virtual_s / 3600:.1f} simulated hours, "
        f"{len(failing)} failing"
    )
    _say(f"faults: {faults.total()} ({_text(faults)})")
    _say(f"done:   {_text(counts)}")
    if failing:
        _say(f"failing seeds: {' '.join(map(str, sorted(failing)))}")
    return 1 if failing else 0


def _reports(first: int, count: int, workers: int, brokers: int | None) -> Iterator[SimReport]:
    seeds = range(first, first + count)
    run = partial(simulate, broker_count=brokers)
    if workers <= 1:
        yield from map(run, seeds)
        return
    # Processes are replaced so that garbage of earlier runs does not accumulate, but rarely: a process takes as long to
    # start as a seed takes to run.
    with get_context("spawn").Pool(workers, maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(run, seeds)


def _show_violations(report: SimReport) -> None:
    for violation in report.violations[:SHOWN_MAX]:
        _say(f"    {violation}")
    if len(report.violations) > SHOWN_MAX:
        _say(f"    and {len(report.violations) - SHOWN_MAX} more")


def _text(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
