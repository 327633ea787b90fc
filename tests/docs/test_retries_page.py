"""The tour of docs/retries.md, run as it is written; each example asserts what it promises."""

from collections.abc import Iterator

import pytest

from docs.runnable import BROKER_SETTINGS, blocks, run_block
from support.broker_process import BrokerProcess

PAGE = "docs/retries.md"
TOUR = blocks(PAGE)

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("docs-retries")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("retries")
    settings = {**BROKER_SETTINGS, "transactions_topic_partitions": 3}
    with BrokerProcess(folder / "data", settings) as running:
        yield running


def test_the_tour_keeps_its_promises(broker: BrokerProcess) -> None:
    for block in TOUR:
        printed = run_block(block, broker)
        if block.kind == "letters":
            billing, converter, shown, value = printed.strip().split("\n")
            assert billing.split("\t")[:2] == ["billing", "1"]
            assert converter.split("\t")[:2] == ["converter", "0"]
            assert "invoices/0/3" in shown
            assert "ValueError" in shown
            assert value == "tomorrow"


def test_the_tour_has_a_step_for_each_promise() -> None:
    assert [block.kind for block in TOUR] == [
        "topics",
        "messages",
        "retry",
        "exactly-once",
        "letters",
        "replay",
        "repaired",
        "purge",
        "ordered",
        "in-order",
    ]
