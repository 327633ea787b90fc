"""How extras are installed is said in one place, and every extra that is named exists."""

import ast
import tomllib
from importlib.metadata import version
from pathlib import Path

from respool.model.extras import how_to_install

ROOT = Path(__file__).parents[2]
EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
SOURCES = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "demo").rglob("*.py"))]


def test_an_extra_is_installed_from_a_checkout_or_from_a_wheel() -> None:
    wheel = f"respool-{version('respool')}-py3-none-any.whl"
    assert how_to_install("arrow,client") == (
        'in a checkout of Respool: pip install ".[arrow,client]"; '
        f'or from its wheel: pip install "{wheel}[arrow,client]"'
    )
    assert f'pip install "."; or from its wheel: pip install "{wheel}"' in how_to_install()


def test_no_other_module_says_how_respool_is_installed() -> None:
    """`pip install 'respool[client]'` was everywhere, for a package that no index had."""
    telling = [
        path.name
        for path in SOURCES
        if "respool[" in (text := path.read_text())
        or 'pip install "' in text
        or "pip install respool" in text
    ]
    assert telling == ["extras.py"]


def test_every_extra_that_is_named_exists() -> None:
    named = {
        extra
        for path in SOURCES
        if "how_to_install(" in (text := path.read_text())
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "how_to_install"
        for given in call.args
        if isinstance(given, ast.Constant)
        for extra in str(given.value).split(",")
    }
    assert {"arrow", "client", "cluster", "dev-cluster"} <= named
    assert named <= EXTRAS
