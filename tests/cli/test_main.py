import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import respool
from cli.running import Run
from respool.cli.exit_codes import EXIT_CODE_MEANING, ExitCode
from respool.cli.main import main
from respool.cli.status import cluster_status, partition_problems

RESPOOL = [sys.executable, "-m", "respool.cli"]

COMMANDS = [
    ["serve"],
    ["status"],
    ["produce"],
    ["consume"],
    ["topic", "create"],
    ["topic", "list"],
    ["topic", "describe"],
    ["topic", "alter"],
    ["topic", "delete"],
    ["transaction", "list"],
    ["transaction", "describe"],
    ["transaction", "abort"],
    ["transaction", "hanging"],
    ["log", "dump"],
    ["log", "verify"],
    ["log", "accept-loss"],
    ["cluster", "up"],
    ["cluster", "status"],
    ["cluster", "add"],
    ["cluster", "drain"],
    ["cluster", "remove"],
    ["cluster", "balance"],
]


def test_the_version_is_the_package_s(run: Run) -> None:
    assert run("--version").out == f"respool {respool.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_with_an_example(run: Run, command: list[str]) -> None:
    ended = run(*command, "--help")
    assert ended.code == 0
    assert f"respool {' '.join(command)}" in ended.out.replace("\n", " ")
    assert "xample" in ended.out


@pytest.mark.parametrize("command", [[], ["topic"], ["mirror"], *COMMANDS], ids=" ".join)
def test_the_help_option_promises_no_value(run: Run, command: list[str]) -> None:
    shown = run(*command, "--help").out
    assert "--help" in shown
    assert "<bool>" not in shown


def test_the_help_of_a_cluster_names_the_extra_that_brings_etcd(run: Run) -> None:
    assert "the extra dev-cluster" in run("cluster", "up", "--help").out


def test_the_fields_of_a_piped_status_are_named(run: Run) -> None:
    shown = run("cluster", "status", "--help").out
    assert ", ".join(("number", *cluster_status.BROKER_COLUMNS[1:])) in shown
    for kind in ("cluster", *partition_problems.PROBLEMS, "moving"):
        assert kind in shown


def test_every_command_that_prints_data_has_json(run: Run) -> None:
    for command in COMMANDS:
        if command not in (["serve"], ["log", "accept-loss"], ["cluster", "up"]):
            assert "--json" in run(*command, "--help").out


def test_the_exit_codes_are_documented(run: Run) -> None:
    shown = run("--help").out
    for code in ExitCode:
        assert re.search(rf"\b{code.value}  {re.escape(EXIT_CODE_MEANING[code])}", shown)


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["topic", "lst"], ["consume"], ["log", "dump"]]
)
def test_a_wrong_command_line_ends_with_2(run: Run, arguments: list[str]) -> None:
    ended = run(*arguments)
    assert ended.code == ExitCode.USAGE
    assert ended.err
    assert ended.out == ""


def test_help_and_version_import_nothing_heavy() -> None:
    script = (
        "import sys; from respool.cli.main import main; main(['--version']);"
        "print(' '.join(sorted({name.split('.')[0] for name in sys.modules})));"
        "print(' '.join(name for name in sys.modules if name.startswith('respool.')))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    _, packages, modules = shown.stdout.splitlines()
    assert not {"confluent_kafka", "kio", "uvloop", "asyncio", "cramjam", "rich"} & set(
        packages.split()
    )
    loaded = {name for name in modules.split() if not name.startswith("respool.cli")}
    assert loaded <= {
        "respool.client",
        "respool.client.kafka.bootstrap",
        "respool.model",
        "respool.model.addresses",
        "respool.model.error_codes",
        "respool.model.errors",
        "respool.model.json_bytes",
        "respool.model.operator_errors",
        "respool.model.quantities",
        "respool.model.security",
        "respool.model.security.acl",
        "respool.model.security.principal",
        "respool.model.security.quota",
        "respool.model.seek_target",
        "respool.model.times",
    }


def test_as_a_module_it_ends_with_the_command_s_exit_code() -> None:
    ended = subprocess.run([*RESPOOL, "log", "verify", "missing"], capture_output=True, check=False)
    assert ended.returncode == ExitCode.NOT_FOUND


def test_ctrl_c_ends_with_130_and_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("respool.operate.cluster_admin.ClusterAdmin.connect", interrupt)
    assert main(["topic", "list"]) == ExitCode.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_an_error_without_a_traceback(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    path = tmp_path / "leader-epoch-checkpoint"
    path.touch()
    monkeypatch.setattr(Path, "read_bytes", refuse)
    ended = run("log", "dump", str(path))
    assert (ended.code, ended.err) == (1, f"error: {path}: Permission denied\n")


def test_a_pipe_closed_by_its_reader_is_no_failure(tmp_path: Path) -> None:
    checkpoint = tmp_path / "leader-epoch-checkpoint"
    lines = [f"{n} {n}" for n in range(200_000)]
    checkpoint.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
    process = subprocess.Popen(
        [*RESPOOL, "log", "dump", str(checkpoint)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"0\t0\n"
    process.stdout.close()
    with process.stderr:
        said = process.stderr.read()
    assert (process.wait(), said) == (ExitCode.OK, b"")


def test_help_into_a_closed_pipe_is_no_failure() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([*RESPOOL, "--help"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (ExitCode.OK, b"")


@pytest.mark.parametrize("is_ignored", [False, True], ids=["by itself", "in the background"])
def test_ctrl_c_while_the_commands_are_imported_shows_no_traceback(is_ignored: bool) -> None:
    """It showed whatever was being imported just then."""
    code = (
        "import importlib.abc, os, signal, sys\n"
        "class Interrupted(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'respool.cli.main':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        f"if {is_ignored}: signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from respool.cli.start import main\n"
        "sys.argv = ['respool', '--version']\n"
        "sys.exit(main())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0 if is_ignored else -signal.SIGINT, "")
