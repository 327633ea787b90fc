"""`respool archive`, on a folder."""

import json
from pathlib import Path

import pytest

from cli.running import Run
from support.archived_broker import (
    archived_topic,
    archiving_broker,
    messages,
    segments_of,
    wait_until_archived,
    write,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def topic(folder: Path) -> str:
    with archiving_broker(folder) as broker:
        name = archived_topic(broker)
        write(broker, name, messages(300))
        wait_until_archived(broker, name, 300)
    return name


def test_status_shows_what_is_archived(run: Run, folder: Path, topic: str) -> None:
    result = run("archive", "status", folder.as_uri())
    name, partition, first, end, _, size, problem = result.out.strip().split("\t")
    assert (name, partition, first, end, problem) == (topic, "0", "0", "300", "-")
    assert int(size) > 300 * 90
    document = json.loads(run("archive", "status", folder.as_uri(), "--json").out)
    (one,) = document["topics"]
    assert one["topic"] == topic
    assert one["partitions"][0]["end_offset"] == 300


def test_verify_and_get(run: Run, folder: Path, topic: str, tmp_path: Path) -> None:
    assert run("archive", "verify", folder.as_uri()).code == 0
    to = tmp_path / "got"
    assert run("archive", "get", folder.as_uri(), "--topic", topic, "--to", str(to)).code == 0
    assert len(list(to.glob("*.log"))) == len(segments_of(folder, topic))
    damaged = segments_of(folder, topic)[0]
    content = damaged.read_bytes()
    damaged.write_bytes(content[:50] + b"x" + content[51:])
    result = run("archive", "verify", folder.as_uri())
    damaged.write_bytes(content)
    assert result.code == 1
    assert damaged.name in result.out


def test_collect_lists_before_it_deletes(run: Run, folder: Path, topic: str) -> None:
    stray = segments_of(folder, topic)[0]
    stray = stray.with_name(stray.name.replace("-e0-", "-e9-"))
    stray.write_bytes(b"stray")
    assert run("archive", "collect", folder.as_uri()).out == ""
    args = ("archive", "collect", folder.as_uri(), "--older-than", "1ms")
    assert stray.name in run(*args).out
    assert stray.exists()
    run(*args, "--delete")
    assert not stray.exists()


def test_a_wrong_address_is_a_usage_error(run: Run) -> None:
    assert run("archive", "status", "ftp://nowhere").code == 2


def test_a_mistyped_address_is_not_found_instead_of_sound(run: Run, tmp_path: Path) -> None:
    """`verify` said "0 segments verified, 0 problems" of a folder that is no archive."""
    for command in ("status", "verify", "collect"):
        ended = run("archive", command, f"file://{tmp_path}/nothing")
        assert (ended.code, ended.out) == (3, "")
        assert "there is no archive at" in ended.err
    restored = run("archive", "restore", tmp_path.as_uri(), "--to", str(tmp_path / "data"))
    assert restored.code == 3
    assert not (tmp_path / "data").exists()
