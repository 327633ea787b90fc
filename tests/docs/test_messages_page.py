"""The examples of docs/messages.md, run as they are written; each asserts what it promises."""

from collections.abc import Iterator

import pytest

from docs.runnable import BROKER_SETTINGS, blocks, run_block
from support.broker_process import BrokerProcess

PAGE = "docs/messages.md"
TOPICS, FIRST, *EXAMPLES = blocks(PAGE)

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("docs-messages")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("messages")
    settings = {**BROKER_SETTINGS, "transactions_topic_partitions": 3}
    with BrokerProcess(folder / "data", settings) as running:
        run_block(TOPICS, running)
        yield running


def test_the_examples_keep_their_promises_one_after_the_other(broker: BrokerProcess) -> None:
    printed = run_block(FIRST, broker).splitlines()
    assert printed == [f"{n} b'ride-{n}' b'pickup {n}'" for n in range(10)]
    for example in EXAMPLES:
        run_block(example, broker)


def test_the_page_has_an_example_for_each_promise() -> None:
    assert [example.kind for example in (TOPICS, FIRST, *EXAMPLES)] == [
        "topics",
        "first",
        "at-least-once",
        "exactly-once",
        "rewind",
        "async",
    ]
