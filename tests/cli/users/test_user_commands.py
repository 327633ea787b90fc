"""From an install to a secured broker: `respool serve --secure`, a user, and a producer that logs in."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RESPOOL = [sys.executable, "-m", "respool.cli"]


def respool(*arguments: str, config: Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "RESPOOL_CLIENT_CONFIG": str(config)}
    return subprocess.run(
        [*RESPOOL, *arguments],
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class SecureBroker:
    def __init__(self, data: Path) -> None:
        self.data = data
        said = (data.parent / "serve.stderr").open("w")
        self.process = subprocess.Popen(
            [*RESPOOL, "serve", "--secure", "--data", str(data), "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        said.close()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"listening on (\S+)", line)
        assert found is not None, (data.parent / "serve.stderr").read_text()
        self.address = found[1]
        self.security = data / "security"

    @property
    def admin(self) -> Path:
        """The administrator's file, with the port that was picked."""
        path = self.data.parent / "admin.properties"
        text = (self.security / "admin.properties").read_text()
        path.write_text(re.sub("bootstrap.servers=.*", f"bootstrap.servers={self.address}", text))
        return path

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(30) == 0
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    made = SecureBroker(tmp_path_factory.mktemp("secure") / "data")
    yield made
    if made.process.poll() is None:
        made.stop()


def test_the_files_of_a_secure_start_are_private(broker: SecureBroker) -> None:
    assert broker.security.stat().st_mode & 0o777 == 0o700
    for name in ("admin.properties", "broker.pem", "ca.key", "ca.pem"):
        assert (broker.security / name).stat().st_mode & 0o077 == 0, name
    said = (broker.data.parent / "serve.stderr").read_text()
    found = re.search("sasl.password=(.+)", (broker.security / "admin.properties").read_text())
    assert found is not None
    assert found[1] not in said
    assert "security.protocol=SASL_SSL" in said
    assert "admin.properties" in said


def test_users_are_added_used_and_removed(broker: SecureBroker, tmp_path: Path) -> None:
    made = respool(
        "user", "add", "etl", "--write", str(tmp_path / "etl"), "--json", config=broker.admin
    )
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == {"user": "etl"}
    assert (tmp_path / "etl").stat().st_mode & 0o077 == 0
    listed = respool("user", "list", "--json", config=broker.admin)
    mechanisms = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert json.loads(listed.stdout) == {
        "users": [
            {"name": "admin", "mechanisms": mechanisms},
            {"name": "etl", "mechanisms": mechanisms},
        ]
    }
    etl = tmp_path / "etl.properties"
    etl.write_text(
        f"bootstrap.servers={broker.address}\nsecurity.protocol=SASL_SSL\n"
        f"ssl.ca.location={broker.security / 'ca.pem'}\n" + (tmp_path / "etl").read_text()
    )
    # It is in, and may not do anything yet.
    denied = respool("user", "list", config=etl)
    assert denied.returncode != 0
    assert "CLUSTER_AUTHORIZATION_FAILED" in denied.stderr
    again = respool("user", "add", "etl", config=broker.admin)
    assert again.returncode != 0
    assert "already" in again.stderr
    changed = respool(
        "user",
        "password",
        "etl",
        "--new-password-file",
        "-",
        config=broker.admin,
        stdin="new one\n",
    )
    assert changed.returncode == 0, changed.stderr
    assert "new one" not in changed.stdout + changed.stderr
    refused = respool("user", "list", config=etl)
    assert "refuses" in refused.stderr
    removed = respool("user", "remove", "etl", config=broker.admin)
    assert removed.returncode == 0, removed.stderr
    assert respool("user", "remove", "etl", config=broker.admin).returncode != 0


def test_without_a_login_nobody_comes_in(broker: SecureBroker, tmp_path: Path) -> None:
    config = tmp_path / "none.properties"
    config.write_text(f"bootstrap.servers={broker.address}\n")
    assert respool("topic", "list", config=config).returncode != 0


def test_passwords_are_no_arguments(broker: SecureBroker) -> None:
    refused = respool("user", "add", "eve", "--password", "secret", config=broker.admin)
    assert refused.returncode == 2


def test_a_second_start_finds_everything(tmp_path: Path) -> None:
    first = SecureBroker(tmp_path / "data")
    before = {one.name: one.read_bytes() for one in first.security.iterdir()}
    assert respool("user", "list", config=first.admin).returncode == 0
    first.stop()
    second = SecureBroker(tmp_path / "data")
    assert {one.name: one.read_bytes() for one in second.security.iterdir()} == before
    assert respool("user", "list", config=second.admin).returncode == 0
    second.stop()
