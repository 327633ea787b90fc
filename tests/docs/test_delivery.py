"""The examples of docs/delivery.md, run as they are written; each asserts what it promises."""

from collections.abc import Iterator

import pytest

from docs.runnable import BROKER_SETTINGS, Block, blocks, run_block
from support.broker_process import BrokerProcess

PAGE = "docs/delivery.md"
TOPIC, PRODUCER, *EXAMPLES = blocks(PAGE)

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("delivery")
    with BrokerProcess(folder / "data", BROKER_SETTINGS) as running:
        run_block(TOPIC, running)
        run_block(PRODUCER, running)
        yield running


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.kind)
def test_an_example_keeps_its_promise(example: Block, broker: BrokerProcess) -> None:
    run_block(example, broker)


def test_the_page_has_an_example_for_each_way() -> None:
    assert [example.kind for example in (TOPIC, PRODUCER, *EXAMPLES)] == [
        "topic",
        "producer",
        "at-most-once",
        "at-least-once",
        "at-least-once-aiokafka",
        "with-the-result",
    ]
