"""The tour of docs/archive.md, run as it is written; and that its tables name what there is."""

import re
from pathlib import Path

import pytest

from docs.runnable import BROKER_SETTINGS, ROOT, blocks, run_block
from respool.cli.archives.archive_commands import app
from respool.model.archiving.archive_topic_settings import ArchiveTopicSettings
from respool.model.config_rules import rules_of
from respool.model.settings import SETTINGS
from support.broker_process import BrokerProcess
from support.waiting import wait_until

PAGE = "docs/archive.md"


@pytest.mark.clients
def test_the_tour_works_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    monkeypatch.setenv("ARCHIVE", folder.as_uri())
    monkeypatch.chdir(tmp_path)
    settings = {
        **BROKER_SETTINGS,
        "archive": folder.as_uri(),
        "archive_check_ms": 20,
        "retention_check_ms": 20,
    }
    create, read, restore = [block for block in blocks(PAGE) if block.kind == "tour"]
    with BrokerProcess(tmp_path / "data", settings) as broker:
        run_block(create, broker)
        wait_until(
            lambda: (
                min(
                    (int(one.stem) for one in (tmp_path / "data" / "history-0").glob("*.log")),
                    default=0,
                )
                == 2
            ),
            "everything is in the archive only",
        )
        lines = run_block(read, broker).splitlines()
        assert lines[:2] == ["the first message of all", "the second"]
        assert lines[2].startswith("history\t0\t0\t2\t1\t")
        broker.stop()
        assert run_block(restore, broker) == "history-0\t0\t2\n"


def test_the_page_names_settings_commands_and_metrics_that_exist() -> None:
    page = (ROOT / PAGE).read_text()
    for name in re.findall(r"`(archive(?:_\w+)?)`", page):
        assert name in SETTINGS or name in {"archive", "hdfs"}
    for name in rules_of(ArchiveTopicSettings):
        assert f"`{name}`" in page
    commands = {
        one.name or one.callback.__name__ for one in app.registered_commands if one.callback
    }
    assert set(re.findall(r"^\| `respool archive (\w+)` \|", page, flags=re.MULTILINE)) == commands
