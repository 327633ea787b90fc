"""Apache RocketMQ as a server under test: a name server and a broker, fetched once from Maven Central like Kafka."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from bench.broker_process import START_SECONDS_MAX, BrokerFailed, MeasuredProcess
from bench.load_client import Measured, measure_command
from bench.versus.cache import CACHE_FOLDER
from bench.versus.java import BROKER_OPTIONS
from bench.versus.kafka_jars import KafkaUnavailable, copy_jars
from bench.versus.kafka_process import POLL_SECONDS
from bench.versus.leash import LEASH
from bench.versus.ports import free_ports, is_accepting

VERSION = "5.3.3"
POM = Path(__file__).with_name("rocketmq.xml")
LOAD = "bench.versus.rocketmq_load"
# It maps its files itself, with what Java 17 keeps for the JDK.
OPENED = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref")


class RocketMqUnavailable(Exception):
    """It cannot be had here; its rows are left out."""


def rocketmq_command(folder: Path, what: str, *arguments: str, options: Sequence[str]) -> list[str]:
    """`folder`: where it keeps its data, its logs and its clients' logs."""
    opened = [f"--add-{how}={one}=ALL-UNNAMED" for one in OPENED for how in ("opens", "exports")]
    where = [f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"]
    jars = ["-cp", f"{_jars_folder()}/*"]
    return [*LEASH, "java", *options, *opened, *where, *jars, what, *arguments]


class _RocketMqPart(MeasuredProcess):
    # A JVM that SIGTERM ended says so.
    stop_codes = (0, 143)
    main_class = ""

    def launch(self, errors: BinaryIO) -> "subprocess.Popen[str]":
        (self.port,) = free_ports(1)
        settings = self.folder / "settings"
        lines = {"listenPort": str(self.port), **self.settings()}
        settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        command = rocketmq_command(
            self.folder, self.main_class, "-c", str(settings), options=BROKER_OPTIONS
        )
        return subprocess.Popen(command, stdout=errors, stderr=errors, text=True)

    def settings(self) -> dict[str, str]:
        return {}

    def wait_until_up(self) -> None:
        deadline = time.perf_counter() + START_SECONDS_MAX
        while not is_accepting(self.host, self.port):
            if not self.is_running or time.perf_counter() > deadline:
                raise BrokerFailed(f"{self.main_class} did not start: {self.last_words()}")
            time.sleep(POLL_SECONDS)


class NameServerProcess(_RocketMqPart):
    main_class = "org.apache.rocketmq.namesrv.NamesrvStartup"


class RocketMqProcess(_RocketMqPart):
    main_class = "org.apache.rocketmq.broker.BrokerStartup"

    def __init__(self, name_server: str) -> None:
        super().__init__()
        self.name_server = name_server

    def settings(self) -> dict[str, str]:
        """Its defaults, but for one: timers at their finest."""
        (replication_port,) = free_ports(1)
        return {
            "namesrvAddr": self.name_server,
            "brokerIP1": self.host,
            "haListenPort": str(replication_port),
            "storePathRootDir": str(self.folder / "store"),
            "storePathCommitLog": str(self.folder / "store" / "commitlog"),
            "timerPrecisionMs": "100",
        }

    def command(self, name: str, *arguments: str) -> tuple[str, ...]:
        """For a load client of it."""
        return (LOAD, str(self.folder), name, self.name_server, *arguments)

    def run(self, name: str, *arguments: str) -> Measured:
        return measure_command(self, *self.command(name, *arguments))


@contextmanager
def rocketmq_started() -> Iterator[RocketMqProcess]:
    """
    Raises:
        RocketMqUnavailable, BrokerFailed
    """
    if shutil.which("java") is None:
        raise RocketMqUnavailable("there is no java on the PATH")
    folder = _jars_folder()
    if not folder.exists():
        CACHE_FOLDER.mkdir(exist_ok=True)
        # Not named as a whole one would be, until it is whole.
        fetching = CACHE_FOLDER / "fetching-rocketmq"
        shutil.rmtree(fetching, ignore_errors=True)
        try:
            copy_jars(POM, fetching, **{"rocketmq.version": VERSION})
        except KafkaUnavailable as error:
            raise RocketMqUnavailable(str(error)) from None
        fetching.rename(folder)
    with NameServerProcess() as names, RocketMqProcess(names.address) as broker:
        yield broker


def _jars_folder() -> Path:
    return CACHE_FOLDER / f"rocketmq-{VERSION}"
