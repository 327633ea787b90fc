"""A newcomer reads the README, then its pages, and tries everything on the one broker the README started.

Each page's own test shows that it works on a broker that has nothing of another page. Here a page has everything of
those before it, and changes nothing that another page changes: so its examples find the same in any order. That they
also end well in the opposite order is shown in make fuzz.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from docs.left_behind import changed, state_of
from docs.runnable import BROKER_SETTINGS, blocks, run_block
from support.broker_process import BrokerProcess

PAGES = [
    "README.md",
    "docs/replay.md",
    "docs/views.md",
    "docs/delivery.md",
    "docs/exactly-once.md",
    "docs/messages.md",
    "docs/arrow.md",
]
# What starts the broker, and what needs two terminals; the rest is to be tried.
NOT_TRIED = {"background", "terminals"}


@pytest.mark.clients
def test_the_pages_work_one_after_the_other_and_change_nothing_of_another(tmp_path: Path) -> None:
    try_one_after_the_other(PAGES, tmp_path)


@pytest.mark.clients
@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
def test_the_pages_also_work_from_the_last_to_the_first(tmp_path: Path) -> None:
    try_one_after_the_other(PAGES[::-1], tmp_path)


def try_one_after_the_other(pages: Sequence[str], folder: Path) -> None:
    settings = {**BROKER_SETTINGS, "transactions_topic_partitions": 3}
    changed_by: dict[str, str] = {}
    # The folder is the README's, as its commands name it.
    with BrokerProcess(folder / "respool-data", settings) as broker:
        found = state_of(broker)
        for page in pages:
            for block in blocks(page):
                if block.kind not in NOT_TRIED:
                    run_block(block, broker)
            before, found = found, state_of(broker)
            for name in changed(before, found):
                assert changed_by.setdefault(name, page) == page, f"{page} changes {name}, too"
    # What is compared is not nothing: each page leaves something, and there is something of each kind.
    assert set(changed_by.values()) == set(pages)
    kinds = {name.rpartition(" ")[0] for name in changed_by}
    assert kinds == {"topic", "group", "transactional id", "file"}
