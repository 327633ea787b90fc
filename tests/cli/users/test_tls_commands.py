"""`respool tls`: certificates of a local authority are issued, shown and renewed."""

import json
from pathlib import Path

import pytest

from cli.running import Run
from respool.cli.exit_codes import ExitCode


def test_certificates_are_issued_shown_and_renewed(run: Run, tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path / "security"))
    hosts = ("--host", "b1.example.org", "--host", "10.0.0.5")
    issued = run("tls", "issue", "broker-1", *hosts, *folder, "--json")
    assert issued.code == 0, issued.err
    file = Path(json.loads(issued.out)["file"])
    assert file.stat().st_mode & 0o077 == 0
    assert run("tls", "issue", "billing", "--days", "10", *folder).out.endswith("billing.pem\n")

    shown = json.loads(run("tls", "show", *folder, "--json").out)["certificates"]
    assert [Path(one["file"]).name for one in shown] == ["ca.pem", "billing.pem", "broker-1.pem"]
    assert [one["name"] for one in shown[1:]] == ["CN=billing", "CN=broker-1"]
    assert shown[2]["hosts"] == ["b1.example.org", "10.0.0.5"]
    assert [one["problem"] for one in shown] == [None, None, None]
    told = run("tls", "show", *folder)
    assert "renew soon: billing.pem" in told.err

    before = file.read_bytes()
    renewed = run("tls", "renew", "--within", "30", *folder)
    assert renewed.err.startswith("renewed billing.pem")
    assert file.read_bytes() == before
    assert run("tls", "renew", "broker-1", *folder).code == 0
    assert file.read_bytes() != before
    (again,) = [
        one
        for one in json.loads(run("tls", "show", *folder, "--json").out)["certificates"]
        if one["name"] == "CN=broker-1"
    ]
    assert again["hosts"] == shown[2]["hosts"]
    assert "none of 2 certificates" in run("tls", "renew", "--within", "30", *folder).err


@pytest.mark.parametrize("name", ["../evil", "ca", "", "a/b", "x" * 65])
def test_a_name_that_is_none_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    ended = run("tls", "issue", name, "--folder", str(tmp_path))
    assert ended.code == ExitCode.USAGE
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path))
    run("tls", "issue", "billing", *folder)
    before = (tmp_path / "billing.pem").read_bytes()
    ended = run("tls", "issue", "billing", *folder)
    assert ended.code == ExitCode.USAGE
    assert "respool tls renew billing" in ended.err
    assert (tmp_path / "billing.pem").read_bytes() == before


def test_what_does_not_exist_cannot_be_renewed(run: Run, tmp_path: Path) -> None:
    run("tls", "issue", "billing", "--folder", str(tmp_path))
    assert run("tls", "renew", "etl", "--folder", str(tmp_path)).code == ExitCode.NOT_FOUND
    assert run("tls", "renew", "ca", "--folder", str(tmp_path)).code == ExitCode.USAGE
    assert run("tls", "show", "--folder", str(tmp_path / "none")).code == ExitCode.NOT_FOUND
