"""A shell is answered as its completion script asks."""

import os
import shutil
import subprocess
import sys

import pytest

from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.cli.shell.completion import VARIABLE, Shell

RESPOOL = f"{sys.executable} -m respool.cli.main"


def answered(**variables: str) -> str:
    """What the program prints to a shell that asks."""
    done = subprocess.run(
        [sys.executable, "-c", "from respool.cli.start import main; main()"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("shell", list(Shell))
def test_each_shell_gets_a_script_that_asks_this_program(run: Run, shell: Shell) -> None:
    ended = run("completion", shell.value)
    assert ended.code == ExitCode.OK
    assert f"{VARIABLE}=complete_{shell.value}" in ended.out
    assert ended.err == ""


def test_another_shell_is_a_usage_error_that_names_the_three(run: Run) -> None:
    ended = run("completion", "tcsh")
    assert ended.code == ExitCode.USAGE
    assert all(shell.value in ended.err for shell in Shell)


@pytest.mark.parametrize(
    ("words", "expected"),
    [("respool top", {"topic"}), ("respool topic del", {"delete"}), ("respool dlq s", {"show"})],
)
def test_bash_completes_commands(words: str, expected: set[str]) -> None:
    last = str(len(words.split()) - 1)
    given = {VARIABLE: "complete_bash", "COMP_WORDS": words, "COMP_CWORD": last}
    assert set(answered(**given).split()) == expected


def test_zsh_completes_options_with_their_help() -> None:
    given = {VARIABLE: "complete_zsh", "_TYPER_COMPLETE_ARGS": "respool topic create --part"}
    assert '"--partitions":"Number of partitions."' in answered(**given)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_takes_the_script(run: Run) -> None:
    script = run("completion", "bash").out
    done = subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p respool"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip().endswith("_respool_completion respool")
