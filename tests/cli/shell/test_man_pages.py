"""Every command has a man page with its arguments and options, in roff that formats without a warning."""

import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from cli.command_tree import all_commands
from cli.running import Run
from respool.cli.exit_codes import ExitCode
from respool.cli.main import app
from respool.cli.shell.man_pages import man_pages

PAGES = dict(man_pages(typer.main.get_command(app)))


def test_every_command_has_a_page_and_so_has_what_groups_them() -> None:
    commands = {f"respool-{'-'.join(path)}.1" for path in all_commands()}
    groups = {
        f"respool-{'-'.join(path[:count])}.1" for path in all_commands() for count in range(1, 3)
    }
    assert set(PAGES) >= commands
    assert set(PAGES) <= {*commands, *groups, "respool.1"}


def test_a_page_has_every_option_and_argument() -> None:
    for path, command in all_commands().items():
        page = PAGES[f"respool-{'-'.join(path)}.1"]
        for one in command.params:
            if one.param_type_name == "argument":
                assert f".I {one.metavar or one.name.upper()}".replace("-", "\\-") in page
            elif not one.hidden:
                assert all(name.replace("-", "\\-") in page for name in one.opts), (path, one.opts)


def test_text_that_roff_would_take_for_a_request_is_escaped() -> None:
    for name, page in PAGES.items():
        for line in page.splitlines():
            assert line.isascii(), name
            if line.startswith((".", "'")):
                request = line.split(" ")[0]
                assert request in {
                    ".TH", ".SH", ".TP", ".B", ".I", ".BR", ".PP", ".nf", ".fi",
                }, (name, line)  # fmt: skip


def test_the_command_writes_them_into_a_new_folder(run: Run, tmp_path: Path) -> None:
    ended = run("man", str(tmp_path / "man" / "man1"))
    assert ended.code == ExitCode.OK
    assert {path.name for path in (tmp_path / "man" / "man1").iterdir()} == set(PAGES)
    assert f"{len(PAGES)} man pages" in ended.err


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_groff_formats_them_without_a_warning(tmp_path: Path) -> None:
    for name, page in PAGES.items():
        (tmp_path / name).write_text(page)
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
