"""A Java program as a process that a test may kill, with Kafka's jars. What it says is kept."""

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.versus.cache import CACHE_FOLDER
from bench.versus.java import java_command
from bench.versus.kafka_jars import KafkaJars, KafkaUnavailable, copy_jars

# Of this version the tests know what its tools print.
KAFKA = "4.3.1"
PROGRAMS = Path(__file__).parents[1] / "interop" / "java"
POM = PROGRAMS.with_name("kafka.xml")
# Several of them share a machine with brokers.
OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


def interop_jars() -> KafkaJars:
    """Kafka's tools, Streams, Connect and MirrorMaker: from the cache, or from Maven Central into it."""
    folder = CACHE_FOLDER / f"interop-kafka-{KAFKA}"
    if (found := KafkaJars.in_folder(folder)) is None:
        CACHE_FOLDER.mkdir(exist_ok=True)
        fetching = folder.with_name(f"fetching-{folder.name}")
        shutil.rmtree(fetching, ignore_errors=True)
        copy_jars(POM, fetching, **{"kafka.version": KAFKA})
        fetching.rename(folder)
        found = KafkaJars.in_folder(folder)
    if found is None:
        raise KafkaUnavailable(f"mvn fetched no broker: no kafka_2.13 in {folder}")
    return found


class JavaProcess:
    """Use it as a context. `program` is a class of the jars, or the name of a file in `tests/interop/java`."""

    def __init__(self, folder: Path, name: str, program: str, *arguments: str) -> None:
        self._log = folder / f"{name}.log"
        what = str(PROGRAMS / program) if program.endswith(".java") else program
        self._command = java_command(interop_jars(), what, *arguments, options=OPTIONS)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None:
            error.add_note(f"{self._log.stem} said:\n{self.said[-4_000:]}")

    def start(self) -> None:
        assert not self.is_running
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """With SIGKILL, as a machine's end would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")
