"""The source tree and the test tree, as the tests of structure see them."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "respool"
TESTS = ROOT / "tests"


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, packages' own `__init__` and `__main__` aside."""
    return {
        dotted(file): file
        for file in sorted(SOURCE.rglob("*.py"))
        if file.stem not in {"__init__", "__main__"}
    }


def packages() -> list[Path]:
    return [file.parent for file in sorted(SOURCE.rglob("__init__.py"))]


def packages_with_modules() -> list[Path]:
    """Packages that hold modules of their own; others only group sub-packages."""
    return [
        package
        for package in packages()
        if package != SOURCE
        and any(file.stem not in {"__init__", "__main__"} for file in package.glob("*.py"))
    ]


def dotted(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts)


def own_tests_of(module: Path) -> Path:
    """src/respool/log/segment.py -> tests/log/test_segment.py."""
    return TESTS / module.relative_to(SOURCE).parent / f"test_{module.name}"


class Outline(NamedTuple):
    """What the tests of structure want to know of a file: parsing takes most of their time, so it is done once."""

    # The modules of `respool` that the file imports, wherever in it.
    imports: frozenset[str]
    # The lines of imports that follow `if TYPE_CHECKING:`, a definition or an assignment.
    late_imports: Sequence[int]
    # Name and line of each class, nested ones too.
    classes: Sequence[tuple[str, int]]


@cache
def outline(file: Path) -> Outline:
    body = ast.parse(file.read_text()).body
    imports: set[str] = set()
    classes = []
    for node in _statements(body):
        if isinstance(node, ast.ImportFrom) and node.module:
            imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            classes.append((node.name, node.lineno))
    others = [number for number, one in enumerate(body) if isinstance(one, _AFTER_IMPORTS)]
    after = body[others[0] :] if others else []
    late = [one.lineno for one in after if isinstance(one, ast.Import | ast.ImportFrom)]
    return Outline(frozenset(imports & modules().keys()), late, classes)


_AFTER_IMPORTS = (
    ast.If,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Assign,
    ast.AnnAssign,
)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, without their expressions: those are most of a tree, and import nothing."""
    for one in body:
        yield one
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(one, name, ()))
        for branch in (*getattr(one, "handlers", ()), *getattr(one, "cases", ())):
            yield from _statements(branch.body)


@cache
def imported_by_tests() -> frozenset[str]:
    return frozenset().union(*(outline(file).imports for file in TESTS.rglob("*.py")))
