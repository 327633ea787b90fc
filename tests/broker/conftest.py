"""Fixtures shared by the tests of the broker."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import retry_at_once
from broker.two_brokers import TwoBrokers, call
from respool.model.settings import Settings


@pytest.fixture
def start_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartBroker]:
    """Start a broker with settings of the test's own."""
    # The metadata store leaves an empty file called ":memory:" where it runs.
    monkeypatch.chdir(tmp_path)
    started: list[RunningBroker] = []

    with asyncio.Runner() as runner:

        def start(**settings: Any) -> RunningBroker:
            started.append(RunningBroker(runner, Settings.from_flat(**settings)))
            return started[-1]

        yield start
        for one in started:
            one.stop()


@pytest.fixture
def running_broker(start_broker: StartBroker) -> RunningBroker:
    return start_broker()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoBrokers]:
    """Two brokers, which try again at once what another could not do."""
    monkeypatch.chdir(tmp_path)
    retry_at_once(monkeypatch)
    monkeypatch.setattr("respool.broker.coordinators.remote_coordinators.PAUSE_S", 0)
    monkeypatch.setattr(
        "respool.broker.handlers.transactions.add_partitions_to_txn.HELD_S_MAX", 0.001
    )
    with asyncio.Runner() as runner:
        world = TwoBrokers(runner)
        yield world
        # Also after a test that failed halfway.
        world.network.request_loss = world.network.reply_loss = 0
        for broker in world:
            runner.run(call(broker.offload.release))
        world.stop()
