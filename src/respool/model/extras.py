"""What to say when a package is missing: how to install the extra of Respool that brings it.

Respool is not on a package index yet, so `pip install respool` would fail, or find something else.
"""

from importlib.metadata import version


def how_to_install(extras: str = "") -> str:
    """Say how the extras (such as `arrow,client`) are installed from a checkout, and from a wheel of it."""
    named = f"[{extras}]" if extras else ""
    wheel = f"respool-{version('respool')}-py3-none-any.whl"
    return f'in a checkout of Respool: pip install ".{named}"; or from its wheel: pip install "{wheel}{named}"'
