"""The tour of docs/queues.md, run as it is written."""

from collections.abc import Iterator

import pytest

from docs.runnable import BROKER_SETTINGS, blocks, run_block
from support.broker_process import BrokerProcess

TOUR = blocks("docs/queues.md")

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("docs-queues")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("queues")
    with BrokerProcess(folder / "data", BROKER_SETTINGS) as running:
        yield running


def test_the_tour_keeps_its_promises(broker: BrokerProcess) -> None:
    for block in TOUR:
        printed = run_block(block, broker)
        if block.kind == "worker":
            assert printed.splitlines() == ["book 1", "pen 1"]
        elif block.kind == "letters":
            lines = [line.split("\t") for line in printed.splitlines()]
            assert lines[0] == ["billing", "Empty", "0", "orders"]
            assert ["billing", "setting", "share.delivery.count.limit", "3"] in lines
            assert "orders/0/1" in printed
            assert printed.count("broken") == 0


def test_the_tour_has_a_step_for_each_promise() -> None:
    assert [block.kind for block in TOUR] == ["topics", "worker", "settings", "letters"]
