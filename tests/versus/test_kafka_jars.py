"""Which Kafka is taken: the newest in the cache, or the one that is asked for."""

import shutil
import subprocess
from pathlib import Path

import pytest
from bench.versus import kafka_jars
from bench.versus.java import java_command
from bench.versus.kafka_jars import (
    KafkaJars,
    KafkaUnavailable,
    broker_version,
    find_kafka,
    newest,
    version_numbers,
)


def _jars(version: str) -> KafkaJars:
    return KafkaJars(folder=Path(f"/cache/kafka-{version}"), version=version)


def test_the_brokers_jar_tells_the_version() -> None:
    names = ["kafka-clients-4.3.1.jar", "kafka_2.13-4.3.1.jar", "scala-library-2.13.16.jar"]
    assert broker_version(names) == "4.3.1"
    assert broker_version(["kafka-clients-4.3.1.jar"]) is None


def test_versions_are_compared_as_numbers() -> None:
    assert version_numbers("4.10.0") > version_numbers("4.9.2")
    assert newest([_jars("4.9.2"), _jars("4.10.0")]) == _jars("4.10.0")


def test_a_version_that_is_asked_for_is_taken_or_none() -> None:
    both = [_jars("4.0.0"), _jars("4.3.1")]
    assert newest(both, version="4.0.0") == _jars("4.0.0")
    assert newest(both, version="4.1.0") is None


def test_a_folder_counts_only_with_a_broker_in_it(tmp_path: Path) -> None:
    assert KafkaJars.in_folder(tmp_path) is None
    (tmp_path / "kafka_2.13-4.3.1.jar").touch()
    found = KafkaJars.in_folder(tmp_path)
    assert found == KafkaJars(folder=tmp_path, version="4.3.1")


def test_a_tool_runs_with_all_jars_of_the_folder() -> None:
    command = java_command(_jars("4.3.1"), "some.Tool", "--help")
    assert command[-4:] == ["-cp", "/cache/kafka-4.3.1/*", "some.Tool", "--help"]


def test_without_java_there_is_no_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(KafkaUnavailable, match="no java"):
        find_kafka()


def test_a_maven_that_reaches_nobody_is_told_in_its_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kafka_jars, "CACHE_FOLDER", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    ended = subprocess.CompletedProcess([], 1, "[ERROR] Unknown host\n", "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(
        KafkaUnavailable, match=r"Maven Central cannot be reached(?s:.*)Unknown host"
    ):
        find_kafka()
    assert list(tmp_path.glob("kafka-*")) == []
