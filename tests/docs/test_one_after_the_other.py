"""A newcomer reads the README, then its pages, and tries everything on the one broker the README started."""

from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, blocks, run_block
from support.broker_process import BrokerProcess

PAGES = [
    "README.md",
    "docs/replay.md",
    "docs/delivery.md",
    "docs/exactly-once.md",
    "docs/messages.md",
    "docs/arrow.md",
]
# What starts the broker, and what needs two terminals; the rest is to be tried.
NOT_TRIED = {"background", "terminals"}


@pytest.mark.clients
@pytest.mark.parametrize("pages", [PAGES, PAGES[::-1]], ids=["in order", "from the last"])
def test_the_pages_work_one_after_the_other_on_one_broker(pages: list[str], tmp_path: Path) -> None:
    settings = {**BROKER_SETTINGS, "transactions_topic_partitions": 3}
    # The folder is the README's, as its commands name it.
    with BrokerProcess(tmp_path / "respool-data", settings) as broker:
        for page in pages:
            for block in blocks(page):
                if block.kind not in NOT_TRIED:
                    run_block(block, broker)
