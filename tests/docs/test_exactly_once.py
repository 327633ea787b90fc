"""The examples of docs/exactly-once.md, run as they are written; each asserts what it promises."""

from collections.abc import Iterator

import pytest

from docs.runnable import BROKER_SETTINGS, Block, blocks, run_block
from support.broker_process import BrokerProcess
from support.topics import Topics

PAGE = "docs/exactly-once.md"
RIDES, *EXAMPLES = blocks(PAGE)

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("docs-exactly-once")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("exactly-once")
    settings = {**BROKER_SETTINGS, "transactions_topic_partitions": 3}
    with BrokerProcess(folder / "data", settings) as running:
        for topic in ("rides", "fares", "tolls"):
            Topics(running.address).create(topic)
        run_block(RIDES, running)
        yield running


# In the page's order: the operator looks at what the first has left.
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.kind)
def test_an_example_keeps_its_promise(example: Block, broker: BrokerProcess) -> None:
    run_block(example, broker)


def test_the_page_has_an_example_for_each_client_and_for_the_operator() -> None:
    assert [example.kind for example in (RIDES, *EXAMPLES)] == [
        "rides",
        "confluent-kafka",
        "aiokafka",
        "operator",
    ]
