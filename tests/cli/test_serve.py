import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.running import Run
from respool.model.errors import DataFolderInUse, SettingsError
from respool.model.settings import SETTINGS, Settings
from respool.node.config import unknown_variables, write_example


class FakeNode:
    """Stands in for `respool.node`: remembers what it was asked, and ends at once."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.ran: list[Settings] = []
        self.ends_with: int | Exception = 0

    def load_settings(
        self,
        *,
        file: Path | None,
        environ: Mapping[str, str],
        flags: Mapping[str, str | bool],
        kafka_file: Path | None,
    ) -> Settings:
        self.asked = {"file": file, "environ": environ, "flags": dict(flags), "kafka": kafka_file}
        if "nonsense" in flags:
            raise SettingsError("there is no setting 'nonsense'")
        return Settings.from_flat(listen=str(flags.get("listen", "127.0.0.1:9092")))

    def run(self, settings: Settings) -> int:
        self.ran.append(settings)
        if isinstance(self.ends_with, Exception):
            raise self.ends_with
        return self.ends_with


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    node = FakeNode()
    config = SimpleNamespace(
        load_settings=node.load_settings,
        unknown_variables=unknown_variables,
        write_example=write_example,
    )
    monkeypatch.setitem(sys.modules, "respool.node.config", config)
    runner = SimpleNamespace(run=node.run)
    monkeypatch.setitem(sys.modules, "respool.node.node", runner)
    return node


def test_only_the_flags_that_were_given_are_passed_on(
    run: Run, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPOOL_NUM_PARTITIONS", "3")
    assert run("serve").code == 0
    assert node.asked["flags"] == {}
    assert node.asked["file"] is None
    assert node.asked["environ"]["RESPOOL_NUM_PARTITIONS"] == "3"
    assert len(node.ran) == 1


def test_every_flag_has_its_setting(run: Run, node: FakeNode, tmp_path: Path) -> None:
    file = tmp_path / "respool.toml"
    file.touch()
    ended = run(
        "serve", "--data", "d", "--listen", "127.0.0.1:0", "--advertised", "broker:1", "--insecure",
        "--metrics", "127.0.0.1:2", "--log-level", "debug", "--log-format", "json", "--set", "num_partitions=4",
        "--config", str(file), "--broker-id", "2", "--etcd", "a:1,b:1", "--cluster", "c", "--rack", "r",
    )  # fmt: skip
    assert ended.code == 0
    assert node.asked["file"] == file
    assert node.asked["flags"] == {
        "data": "d",
        "listen": "127.0.0.1:0",
        "advertised": "broker:1",
        "insecure": True,
        "metrics_listen": "127.0.0.1:2",
        "log_level": "debug",
        "log_format": "json",
        "num_partitions": "4",
        "broker_id": 2,
        "etcd": "a:1,b:1",
        "cluster": "c",
        "rack": "r",
    }
    assert set(node.asked["flags"]) <= {*SETTINGS, "topic"}


def test_how_the_broker_ended_is_the_exit_code(run: Run, node: FakeNode) -> None:
    node.ends_with = 70
    assert run("serve").code == 70


def test_a_wrong_setting_is_told_and_nothing_is_started(run: Run, node: FakeNode) -> None:
    ended = run("serve", "--set", "nonsense=1")
    assert ended.code == 2
    assert "there is no setting 'nonsense'" in ended.err
    assert node.ran == []


def test_a_broker_that_cannot_start_says_why(run: Run, node: FakeNode) -> None:
    node.ends_with = DataFolderInUse("another process has the folder")
    ended = run("serve")
    assert ended.code == 1
    assert "another process has the folder" in ended.err


def test_a_missing_settings_file_is_not_found(run: Run, node: FakeNode) -> None:
    assert run("serve", "--config", "missing.toml").code == 3
    assert node.ran == []


def test_a_setting_given_by_flag_and_by_set_is_refused(run: Run, node: FakeNode) -> None:
    ended = run("serve", "--listen", "127.0.0.1:1", "--set", "listen=127.0.0.1:2")
    assert ended.code == 2
    assert "listen" in ended.err
    assert node.ran == []


def test_print_config_says_on_standard_error_which_variables_are_ignored(
    run: Run, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPOOL_LISTENS", "127.0.0.1:7")
    ended = run("serve", "--print-config")
    assert "RESPOOL_LISTENS is ignored" in ended.err
    assert "RESPOOL_LISTENS" not in ended.out


def test_a_kafka_brokers_settings_are_printed_as_a_file_of_respools(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.retention.hours=24\nnum.partitions=3\nnum.io.threads=8\n")
    ended = run("serve", "--kafka-config", str(file), "--print-config")
    printed = tomllib.loads(ended.out)
    assert printed == {"num_partitions": 3, "topic": {"retention.ms": "86400000"}}
    assert f"{file}: accepted without effect: num.io.threads" in ended.err


def test_every_reason_why_lines_have_no_effect_is_said_with_the_settings(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    names = (
        "num.io.threads",
        "queued.max.requests",
        "socket.send.buffer.bytes",
        "metrics.num.samples",
        "fetch.purgatory.purge.interval.requests",
        "offsets.load.buffer.size",
        "log.initial.task.delay.ms",
        "log.cleaner.io.buffer.size",
        "request.timeout.ms",
        "password.encoder.secret",
        "remote.x",
        "share.coordinator.append.linger.ms",
        "group.streams.x",
    )
    file.write_text("".join(f"{name}=1\n" for name in names))
    ended = run("serve", "--kafka-config", str(file), "--print-config")
    assert all(name in ended.err for name in names)
    assert "more" not in ended.err.splitlines()[-1]


def test_every_line_of_a_kafka_brokers_settings_that_is_refused_is_said(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("ssl.keystore.location=a\nno.such=1\n")
    ended = run("serve", "--kafka-config", str(file))
    assert ended.code == 2
    assert "2 lines are refused" in ended.err
    assert "line 1: ssl.keystore.location" in ended.err
    assert "line 2: no.such" in ended.err


def test_a_kafka_brokers_settings_that_are_missing_are_not_found(
    run: Run, node: FakeNode, tmp_path: Path
) -> None:
    ended = run("serve", "--kafka-config", str(tmp_path / "none.properties"))
    assert ended.code == 3
    assert "none.properties" in ended.err
    assert not node.ran


def test_print_config_says_on_standard_error_which_settings_have_a_new_name(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESPOOL_REPLICA_HURRY_BYTES", "7")
    ended = run("serve", "--etcd", "localhost", "--set", "lend_files=false", "--print-config")
    assert "lend_files: is called local_reads now" in ended.err
    assert "RESPOOL_REPLICA_HURRY_BYTES: is called replica_fetch_ahead_bytes now" in ended.err
    printed = tomllib.loads(ended.out)
    assert printed["local_reads"] is False
    assert printed["replica_fetch_ahead_bytes"] == 7
    assert "lend_files" not in ended.out


def test_print_config_prints_toml_and_starts_nothing(run: Run, node: FakeNode) -> None:
    ended = run("serve", "--listen", "127.0.0.1:7", "--print-config")
    assert ended.code == 0
    assert tomllib.loads(ended.out)["listen"] == "127.0.0.1:7"
    assert node.ran == []
