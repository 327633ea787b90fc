"""Only `client/kafka` connects to brokers and knows the protocol's numbers, also where no import shows it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from architecture.tree import SOURCE

# On the client side; whole-package imports are forbidden in pyproject.toml.
CLIENT_SIDE = (
    "client/arrow",
    "client/messages",
    "spark",
    "pipeline",
    "replay",
    "mirror",
    "operate",
    "inspect",
    "cli",
    "rides",
    "local_reads",
)
MAY_CONNECT = ("client/kafka/", "drivers/", "server/", "node/", "sim/", "testing/")
_CONNECTS = {"open_connection", "open_unix_connection", "create_connection"}
_CODES = {code.name for code in ErrorCode} - {"none"}


@pytest.mark.parametrize("package", CLIENT_SIDE)
def test_error_codes_and_versions_come_from_the_client_core(package: str) -> None:
    """`OFFSET_OUT_OF_RANGE = 1` belongs into `client/kafka/codes.py`, `VersionRange(3, 4)` into `versions.py`."""
    files = sorted((SOURCE / package).rglob("*.py"))
    assert files
    assert [found for file in files for found in _protocol_numbers(file)] == []


def test_only_the_client_core_opens_connections() -> None:
    found = [
        f"{path}:{node.lineno}"
        for file in sorted(SOURCE.rglob("*.py"))
        if not (path := file.relative_to(SOURCE).as_posix()).startswith(MAY_CONNECT)
        if any(name in file.read_text() for name in _CONNECTS)
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute | ast.Name) and _name(node) in _CONNECTS
    ]
    assert found == []


def test_protocol_numbers_are_recognised(tmp_path: Path) -> None:
    file = tmp_path / "planted.py"
    file.write_text(
        "_OFFSET_OUT_OF_RANGE = 1\n"
        "class A:\n"
        "    FENCED_LEADER_EPOCH: int = 74\n"
        "    shown_max = 3\n"
        "if part.error_code == 6: pass\n"
        "if part.error_code == 0: pass\n"
        "if part.error_code in (5, 6): pass\n"
        "versions.VersionRange(3, 4)\n"
    )
    assert [found.rpartition(":")[2] for found in _protocol_numbers(file)] == [
        "1",
        "3",
        "5",
        "7",
        "8",
    ]


def _protocol_numbers(file: Path) -> Iterator[str]:
    tree = ast.parse(file.read_text())
    lines = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.expr) and _is_one(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_number(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_name(target).strip("_").lower() in _CODES for target in targets):
                lines.add(node.lineno)
    yield from (f"{file.as_posix()}:{line}" for line in sorted(lines))


def _is_one(node: ast.expr) -> bool:
    """A range of versions, or an error code that is compared with a number."""
    if isinstance(node, ast.Call):
        return _name(node.func) == "VersionRange"
    if isinstance(node, ast.Compare):
        compared = [one for right in node.comparators for one in getattr(right, "elts", [right])]
        return _name(node.left) == "error_code" and any(map(_is_number, compared))
    return False


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 0


def _name(node: ast.expr) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")
