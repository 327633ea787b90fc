"""Time zones for schedules, by their IANA names.

The rules come from a pinned package, never from the host: so all brokers of one release agree when a schedule fires,
and hosts need no time zone database.
"""

import re
from functools import lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

import tzdata

UTC_NAME = "UTC"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*")
_NAME_LENGTH_MAX = 64


class UnknownTimeZone(ValueError):
    """There is no time zone of this name."""


@lru_cache(maxsize=1_000)
def find_zone(name: str) -> ZoneInfo:
    """Return the time zone, such as `Europe/Berlin`.

    Raises:
        UnknownTimeZone: the name is unknown.
    """
    # The name is used as a path below.
    if len(name) > _NAME_LENGTH_MAX or not _NAME.fullmatch(name):
        raise UnknownTimeZone(_refusal(name))
    file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    if not file.is_file():
        raise UnknownTimeZone(_refusal(name))
    with file.open("rb") as content:
        try:
            return ZoneInfo.from_file(content, key=name)
        except ValueError:
            # One of the package's other files.
            raise UnknownTimeZone(_refusal(name)) from None


def zones_version() -> str:
    """The release of the time zone database, such as `2026a`."""
    return str(tzdata.IANA_VERSION)


def _refusal(name: str) -> str:
    return f"{name[:_NAME_LENGTH_MAX]!r} is not a time zone; write one such as Europe/Berlin or UTC"
