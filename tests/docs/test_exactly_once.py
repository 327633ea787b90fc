"""The examples of docs/exactly-once.md, run as they are written; each asserts what it promises."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from docs.runnable import BROKER_SETTINGS, blocks, run_block, try_block
from support.broker_process import BrokerProcess
from support.topics import Topics

PAGE = "docs/exactly-once.md"
TOPICS, JOURNEYS, *EXAMPLES = blocks(PAGE)

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("docs-exactly-once")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("exactly-once")
    settings = {**BROKER_SETTINGS, "transactions_topic_partitions": 3}
    with BrokerProcess(folder / "data", settings) as running:
        run_block(TOPICS, running)
        run_block(JOURNEYS, running)
        yield running


def test_the_examples_keep_their_promises_one_after_the_other(broker: BrokerProcess) -> None:
    # One test: the operator looks at what the first has left, on the same broker.
    for example in EXAMPLES:
        run_block(example, broker)


def test_a_message_that_cannot_be_transformed_ends_the_loop(broker: BrokerProcess) -> None:
    Topics(broker.address).create("bad-journeys")
    Topics(broker.address).create("bad-fares")
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce("bad-journeys", key="journey-0", value="far")
    assert producer.flush(30) == 0
    loop = next(example for example in EXAMPLES if example.kind == "confluent-kafka")
    text = loop.text.replace('"journeys"', '"bad-journeys"').replace('"fares', '"bad-fares')
    ended = try_block(loop._replace(text=text), broker)
    assert ended.returncode == 1
    assert "ValueError: invalid literal for int() with base 10: b'far'" in ended.stderr


def test_the_aiokafka_example_also_ends_where_topics_have_more_partitions(
    broker: BrokerProcess,
) -> None:
    renamed = [
        block._replace(
            text=block.text.replace('"journeys"', '"wide-journeys"').replace(
                '"tolls', '"wide-tolls'
            )
        )
        for block in (JOURNEYS, *EXAMPLES)
        if block.kind in {"journeys", "aiokafka"}
    ]
    for topic in ("wide-journeys", "wide-tolls"):
        Topics(broker.address).create(topic, partitions=3)
    for block in renamed:
        run_block(block, broker)


def test_the_page_has_an_example_for_each_client_and_for_the_operator() -> None:
    assert [example.kind for example in (TOPICS, JOURNEYS, *EXAMPLES)] == [
        "topics",
        "journeys",
        "confluent-kafka",
        "aiokafka",
        "operator",
    ]
