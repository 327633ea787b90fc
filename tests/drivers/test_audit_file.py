import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from respool.drivers.audit_file import AuditFile
from respool.testing import Broker
from support.topics import Topics


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


@pytest.fixture
def audit(path: Path) -> Iterator[AuditFile]:
    opened = AuditFile(str(path))
    yield opened
    opened.close()


def events(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_event_is_a_line_that_only_the_owner_can_read(audit: AuditFile, path: Path) -> None:
    audit.write({"event": "denied", "name": "a\nforged line"})
    audit.write({"event": "changed"})
    assert events(path) == [{"event": "denied", "name": "a\nforged line"}, {"event": "changed"}]
    assert path.stat().st_mode & 0o077 == 0


def test_what_was_there_stays(path: Path) -> None:
    path.write_text('{"event": "earlier"}\n')
    audit = AuditFile(str(path))
    audit.write({"event": "later"})
    audit.close()
    assert events(path) == [{"event": "earlier"}, {"event": "later"}]


def test_a_file_that_was_rotated_away_is_made_again(audit: AuditFile, path: Path) -> None:
    audit.write({"event": "first"})
    rotated = path.rename(path.with_suffix(".1"))
    audit.write({"event": "second"})
    assert (events(rotated), events(path)) == ([{"event": "first"}], [{"event": "second"}])


def test_an_event_that_cannot_be_written_is_in_the_log(
    audit: AuditFile, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.unlink()
    path.mkdir()
    with caplog.at_level(logging.ERROR):
        audit.write({"event": "denied", "name": "orders"})
    assert "orders" in caplog.text
    assert "could not be written" in caplog.text


def test_a_file_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        AuditFile(str(tmp_path / "missing" / "audit.jsonl"))


def test_a_broker_writes_changes_into_the_file_of_its_setting(path: Path) -> None:
    with Broker(settings={"audit_file": str(path)}) as broker:
        Topics(broker.bootstrap).create("rides")
    assert any("created topic 'rides'" in json.dumps(event) for event in events(path))
