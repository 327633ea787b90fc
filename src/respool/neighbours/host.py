"""What this machine is called among all: the number that its kernel drew when it started."""

from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def this_host() -> str:
    """The same for all processes under this kernel, and for no others; empty where there is no such number."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
