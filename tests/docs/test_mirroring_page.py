"""The tour and the Python example of docs/mirroring.md, run as they are written between two brokers."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer

from docs.runnable import ADDRESS_IN_DOCS, BROKER_SETTINGS, blocks, run_block
from respool.testing import Broker
from support.broker_process import BrokerProcess

PAGE = "docs/mirroring.md"
TARGET_IN_DOCS = "127.0.0.1:9192"


@pytest.mark.clients
def test_the_tour_works_as_it_is_written(tmp_path: Path) -> None:
    tour = [block for block in blocks(PAGE) if block.kind == "tour"]
    with (
        BrokerProcess(tmp_path / "here", BROKER_SETTINGS) as here,
        BrokerProcess(tmp_path / "there", BROKER_SETTINGS) as there,
    ):
        outputs = [
            run_block(block._replace(text=block.text.replace(TARGET_IN_DOCS, there.address)), here)
            for block in tour
        ]
    made, status, read, promoted = outputs
    assert made.split()[0] == "1000"
    rows = [line.split("\t") for line in status.splitlines()]
    assert [(row[0], row[2], row[-1]) for row in rows] == [("trips", "mirror", "0")] * 2
    assert read.split() == ["1000", "refused"]
    # The one message that came after the move.
    assert sum(int(line.split("\t")[-1]) for line in promoted.splitlines()) == 1


@pytest.mark.clients
def test_the_python_example_works_as_it_is_written(tmp_path: Path) -> None:
    (example,) = (block for block in blocks(PAGE) if block.kind == "start-mirror")
    with (
        Broker(topics={"trips": 2}, data=tmp_path / "here" / "data") as source,
        Broker() as target,
    ):
        producer = Producer({"bootstrap.servers": source.bootstrap})
        for number in range(100):
            producer.produce("trips", str(number))
        assert producer.flush(60) == 0
        example = example._replace(text=example.text.replace(TARGET_IN_DOCS, target.bootstrap))
        served = SimpleNamespace(address=source.bootstrap, data=tmp_path / "here")
        assert run_block(example, served) == "0 [('trips', 100, 'copying')]\n"


def test_the_page_starts_the_brokers_that_its_commands_name() -> None:
    started = "".join(block.text for block in blocks(PAGE) if block.kind == "background")
    assert f"--listen {ADDRESS_IN_DOCS}" in started
    assert f"--listen {TARGET_IN_DOCS}" in started
