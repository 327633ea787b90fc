"""Which cases run on one worker, and in which order: what takes long first, so that all workers end together.

xdist hands out groups and single cases in the order of the collection (`--no-loadscope-reorder`). Groups are long and
cannot be divided: they come first, and of them those with Spark, as the longest. Then cases that start processes. The
thousands of short ones come last and fill what time is left on each worker.

Cases of a file that share a fixture of the file, such as a broker, are a group: on six workers, it would be made six
times.
"""

from collections.abc import Sequence

import pytest

# Long groups, the longest first; see the figures in `.durations/`.
LONG_GROUPS = (
    "spark-pipeline",
    "spark",
    "spark-processes",
    "messages-kill",
    "cli-groups",
    "etcd",
    "kill",
    "cluster",
    "cli-end-to-end",
    "compacted-topics",
    "cli-transactions",
    "arrow-ranges",
    "arrow-round-trip",
    "groups sharing",
    "messages-consumer",
)
# Scopes of fixtures that are shared within a file.
SHARED = ("module", "package")
# Marks of cases that start processes.
PROCESS_MARKS = ("crash", "clients")


def in_running_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The same in every process that collects the same cases, as xdist needs it."""
    return sorted(items, key=rank)


def rank(item: pytest.Item) -> int:
    group = group_of(item)
    if group in LONG_GROUPS:
        return LONG_GROUPS.index(group)
    if group is not None:
        return len(LONG_GROUPS)
    starts_processes = any(item.get_closest_marker(name) for name in PROCESS_MARKS)
    return len(LONG_GROUPS) + (1 if starts_processes else 2)


def group_by_shared_fixture(item: pytest.Item) -> None:
    """Add the group of its file to a case that shares a fixture with others, unless it is in a group already."""
    # Cases with Spark get theirs later: see `spark_fixtures`.
    has_one = group_of(item) is not None or "spark" in getattr(item, "fixturenames", ())
    if not has_one and shares_a_fixture(item):
        item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def shares_a_fixture(item: pytest.Item) -> bool:
    # pytest has no public API for this. If it changes, fixtures are made on several workers.
    found = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return any(definitions[-1].scope in SHARED for definitions in found.values())


def group_of(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("xdist_group")
    if mark is None:
        return None
    return str(mark.args[0] if mark.args else mark.kwargs["name"])
