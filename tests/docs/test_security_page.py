"""The tours of docs/security.md, run as they are written: a secured broker, and an open one, closed step by step.

The broker and the commands run in this process, so that the restarts of the second tour cost nothing.
"""

import contextlib
import io
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.runnable import BROKER_SETTINGS, ROOT, Block, all_blocks, blocks
from respool.cli.main import main
from respool.cli.users import tls_commands, token_commands, user_commands
from respool.model.settings import SETTINGS
from respool.node.config import load_settings
from respool.node.secure_start import secure_flags
from respool.testing import Broker
from support.ports import reserve_ports

PAGE = "docs/security.md"
TOUR = blocks(PAGE)


def of(kind: str) -> list[Block]:
    return [block for block in TOUR if block.kind == kind]


class Shell:
    """Runs the lines of a block as the page's reader does, each command of ours in this process."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ports: list[int]
    ) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self._ports = dict(zip(("9092", "9094"), map(str, ports), strict=True))
        self.said = ""

    def written(self, text: str) -> str:
        """The page's text with the ports of this test."""
        for written, port in self._ports.items():
            text = text.replace(f"127.0.0.1:{written}", f"127.0.0.1:{port}")
        return text

    def run(self, block: Block, *, code: int = 0) -> str:
        """What its commands print; all but the last must end well, and the last with this code."""
        text = self.written(block.text)
        self._capsys.readouterr()
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(text, PAGE, "exec"), {})
            return printed.getvalue()
        *others, last = [self._line(line) for line in text.splitlines()]
        self.said = "".join(one[2] for one in (*others, last))
        assert [one[0] for one in others] == [0] * len(others), self.said
        assert last[0] == code, self.said
        return "".join(one[1] for one in (*others, last))

    def _line(self, line: str) -> tuple[int, str, str]:
        words = shlex.split(line)
        if words[0] == "export":
            self._monkeypatch.setenv(*words[1].split("=", 1))
            return 0, "", ""
        if words[0] == "respool":
            code = main(words[1:])
            return int(code), *self._capsys.readouterr()
        done = subprocess.run(
            ["bash", "-euc", line], capture_output=True, text=True, check=False, timeout=10
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.chdir(tmp_path)
    found = reserve_ports(2)
    monkeypatch.setenv("RESPOOL_BROKER", f"127.0.0.1:{found[0]}")
    return found


@pytest.fixture
def shell(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, ports: list[int]
) -> Shell:
    return Shell(capsys, monkeypatch, ports)


@pytest.fixture
def secured_broker(ports: list[int]) -> Iterator[Broker]:
    """What `respool serve --secure` starts."""
    flags: dict[str, Any] = {"data": "respool-data", "listen": f"127.0.0.1:{ports[0]}"}
    made = secure_flags(load_settings(file=None, environ={}, flags=flags))
    with Broker(data="respool-data", port=ports[0], settings={**BROKER_SETTINGS, **made}) as broker:
        yield broker


@pytest.mark.clients
@pytest.mark.usefixtures("secured_broker")
def test_a_secured_broker_is_used_as_it_is_written(shell: Shell) -> None:
    made, used, from_python, removed = of("tour")
    shell.run(made)
    assert Path("etl.properties").stat().st_mode & 0o077 == 0
    consumed = shell.run(used).splitlines()
    assert consumed[:1] == ["requested"]
    assert consumed[-1].startswith("allowed")
    assert shell.run(from_python) == "delivered\n"
    shell.run(removed)
    refused = Block("sh", "tour", "respool topic list --client-config etl.properties")
    shell.run(refused, code=1)
    assert "Authentication failed" in shell.said


def test_the_page_starts_the_broker_that_its_commands_name() -> None:
    (background,) = of("background")
    assert background.text == "respool serve --secure\n"
    assert "respool-data/security/admin.properties" in of("tour")[0].text


@pytest.mark.clients
def test_an_open_broker_is_closed_step_by_step_and_back(
    shell: Shell, ports: list[int], tmp_path: Path
) -> None:
    issued, users = of("step")
    (listener,), (secured,), (closed,) = of("listener"), of("secured"), of("closed")
    (observed,), (rules,), (enforced,), (back,) = (
        of("observe"),
        of("rules"),
        of("enforce"),
        of("back"),
    )
    opened = Block("sh", "", "respool topic create orders")
    anybody = Block("sh", "", "respool produce orders -m anybody")
    settings: dict[str, Any] = {**BROKER_SETTINGS, "audit_file": str(tmp_path / "audit.jsonl")}

    def serve(more: dict[str, Any]) -> Broker:
        return Broker(data="respool-data", port=ports[0], settings=settings | more)

    with serve({}):
        shell.run(opened)
        shell.run(issued)
    with_listener = tomllib.loads(shell.written(listener.text))
    with serve(with_listener):
        Path("secured.properties").write_text(shell.written(secured.text))
        shell.run(users)
        shell.run(anybody)
        shell.run(observed)
        assert ("User:shop", "WRITE", "orders") in audited("would deny", tmp_path)
        (tmp_path / "audit.jsonl").write_text("")
        shell.run(rules)
        shell.run(Block("sh", "", "respool produce orders -m 1 --client-config shop.properties"))
        assert audited("would deny", tmp_path) <= {("User:shop", "DESCRIBE_CONFIGS", "orders")}
        shell.run(enforced)
        shell.run(anybody, code=1)
        assert "TOPIC_AUTHORIZATION_FAILED" in shell.said
    with serve(with_listener | tomllib.loads(closed.text)):
        shell.run(anybody, code=4)
        shell.run(enforced)
    with serve(with_listener):
        shell.run(back)
        shell.run(anybody)
    with serve({}):
        shell.run(anybody)


def audited(event: str, folder: Path) -> set[tuple[str, str, str]]:
    lines = (folder / "audit.jsonl").read_text().splitlines()
    return {
        (one["principal"], one["operation"], one["name"])
        for one in map(json.loads, lines)
        if one["event"] == event
    }


def test_the_page_names_commands_and_settings_that_exist() -> None:
    page = (ROOT / PAGE).read_text()
    for noun, app in (
        ("user", user_commands.app),
        ("token", token_commands.app),
        ("tls", tls_commands.app),
    ):
        commands = {
            one.name or one.callback.__name__ for one in app.registered_commands if one.callback
        }
        named = set(re.findall(rf"`(?:respool )?{noun} ([a-z]+)\b", page))
        assert named == commands, noun
    prefixes = ("sasl_", "ssl_", "delegation_", "inter_broker_", "connections_")
    for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page):
        assert name in SETTINGS or not name.startswith(prefixes), name
    for text in (block.text for block in all_blocks(PAGE) if block.language == "toml"):
        assert tomllib.loads(text)
