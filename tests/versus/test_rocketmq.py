"""RocketMQ beside us: without Java its rows are left out, and its broker is told where its name server is."""

import shutil
from pathlib import Path

import pytest
from bench.versus.rocketmq import (
    RocketMqProcess,
    RocketMqUnavailable,
    rocketmq_command,
    rocketmq_started,
)


def test_without_java_it_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(RocketMqUnavailable, match="no java on the PATH"), rocketmq_started():
        pass


def test_the_broker_finds_its_name_server_and_keeps_all_in_its_folder(tmp_path: Path) -> None:
    broker = RocketMqProcess("127.0.0.1:20001")
    broker.folder = tmp_path
    settings = broker.settings()
    assert settings["namesrvAddr"] == "127.0.0.1:20001"
    assert settings["storePathCommitLog"].startswith(str(tmp_path))


def test_a_command_opens_what_java_17_keeps_for_itself(tmp_path: Path) -> None:
    command = rocketmq_command(tmp_path, "Main", "-c", "settings", options=("-Xmx1G",))
    assert command[-3:] == ["Main", "-c", "settings"]
    assert "--add-opens=java.base/java.nio=ALL-UNNAMED" in command
    assert f"-Duser.home={tmp_path}" in command
