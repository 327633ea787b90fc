"""Apache Kafka as a folder of jars: fetched once from Maven Central by `mvn`, then kept in the cache."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.versus.cache import CACHE_FOLDER

POM = Path(__file__).with_name("pom.xml")
FETCH_SECONDS_MAX = 900.0
# What Maven prints even where nobody sees colours.
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_BROKER_JAR = re.compile(r"kafka_2\.13-(\d+(?:\.\d+)*)\.jar")


class KafkaUnavailable(Exception):
    """There is no Apache Kafka to compare with: no Java, no Maven, or no way to Maven Central."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaJars:
    folder: Path
    version: str

    @property
    def classpath(self) -> str:
        # Java itself expands the star, to all jars of the folder.
        return f"{self.folder}/*"

    @classmethod
    def in_folder(cls, folder: Path) -> Self | None:
        """What is in the folder, if a broker is among it."""
        version = broker_version(path.name for path in folder.glob("*.jar"))
        return None if version is None else cls(folder=folder, version=version)


def find_kafka(*, version: str | None = None, is_fresh: bool = False) -> KafkaJars:
    """The newest one in the cache, or the newest there is.

    Args:
        version: exactly this one.
        is_fresh: ask Maven Central, although the cache has one.

    Raises:
        KafkaUnavailable: the message says what is missing, and what to do.
    """
    if shutil.which("java") is None:
        raise KafkaUnavailable(
            "there is no java on the PATH; Apache Kafka 4 needs Java 17 or newer"
        )
    cached = None if is_fresh else newest(_cached(), version=version)
    return cached or _fetch(version)


def newest(found: Iterable[KafkaJars], *, version: str | None = None) -> KafkaJars | None:
    wanted = [one for one in found if version in {None, one.version}]
    return max(wanted, key=lambda one: version_numbers(one.version), default=None)


def broker_version(jar_names: Iterable[str]) -> str | None:
    for name in jar_names:
        match = _BROKER_JAR.fullmatch(name)
        if match:
            return match.group(1)
    return None


def version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _cached() -> list[KafkaJars]:
    found = (KafkaJars.in_folder(folder) for folder in CACHE_FOLDER.glob("kafka-*"))
    return [one for one in found if one is not None]


def _fetch(version: str | None) -> KafkaJars:
    CACHE_FOLDER.mkdir(exist_ok=True)
    # Not named as a whole one would be, until it is whole.
    fetching = CACHE_FOLDER / "fetching-kafka"
    shutil.rmtree(fetching, ignore_errors=True)
    copy_jars(POM, fetching, **({"kafka.version": version} if version else {}))
    jars = KafkaJars.in_folder(fetching)
    if jars is None:
        raise KafkaUnavailable(f"mvn fetched no broker: no kafka_2.13 in {fetching}")
    folder = CACHE_FOLDER / f"kafka-{jars.version}"
    shutil.rmtree(folder, ignore_errors=True)
    fetching.rename(folder)
    return KafkaJars(folder=folder, version=jars.version)


def copy_jars(pom: Path, folder: Path, **properties: str) -> None:
    """All that a project depends on when it runs, fetched from Maven Central.

    Raises:
        KafkaUnavailable: the message says why.
    """
    if shutil.which("mvn") is None:
        raise KafkaUnavailable("there is no mvn on the PATH; it fetches Kafka from Maven Central")
    command = [
        "mvn",
        "--batch-mode",
        "--quiet",
        # Also when it failed a moment ago.
        "--update-snapshots",
        "--file",
        str(pom),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={folder}",
        "-DincludeScope=runtime",
        *(f"-D{name}={value}" for name, value in properties.items()),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise KafkaUnavailable(f"mvn fetched no Kafka in {FETCH_SECONDS_MAX:.0f} s") from None
    if done.returncode:
        said = _COLOUR.sub("", done.stdout + done.stderr).strip().splitlines()[:1]
        raise KafkaUnavailable(
            "Maven Central cannot be reached, or does not have it. "
            f"mvn ended with exit code {done.returncode}: {''.join(said) or 'no reason'}"
        )
