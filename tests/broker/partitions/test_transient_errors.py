"""Troubles that pass are told once, and once more when they come again."""

import logging

import pytest

from respool.broker.partitions.transient_errors import TransientErrors
from respool.model.errors import DiskFull, HandlesExhausted
from respool.model.ids import TopicPartition


@pytest.fixture
def troubles(caplog: pytest.LogCaptureFixture) -> TransientErrors:
    caplog.set_level(logging.INFO)
    return TransientErrors(TopicPartition("rides", 0))


def test_a_full_disk_is_told_once_until_there_is_room_again(
    troubles: TransientErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        troubles.on_disk_full(DiskFull("0 bytes left"))
    assert len(caplog.records) == 1
    troubles.on_appended()
    troubles.on_appended()
    assert [one.levelname for one in caplog.records] == ["ERROR", "INFO"]
    troubles.on_disk_full(DiskFull("0 bytes left"))
    assert len(caplog.records) == 3


def test_the_want_of_handles_is_told_once_until_something_was_appended(
    troubles: TransientErrors, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        troubles.on_handles_exhausted(HandlesExhausted("1024 in use"))
    assert [one.levelname for one in caplog.records] == ["ERROR"]
    assert "ulimit" in caplog.text
    troubles.on_appended()
    troubles.on_handles_exhausted(HandlesExhausted("1024 in use"))
    assert len(caplog.records) == 2
