"""A real Spark cluster on this machine: a master and workers as processes of their own, as on many machines."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from respool.spark.java import java_home
from support.ports import reserve_port

START_SECONDS_MAX = 90.0
REGISTERED = "Successfully registered with master"
LEADS = "New state: ALIVE"
HOST = "127.0.0.1"


class SparkCluster:
    """Use it as a context. `url` is for `--master`."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port = reserve_port()

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start("master", LEADS, "--port", str(self._port), "--webui-port", "0")
            for number in range(self._workers):
                self._start(
                    f"worker-{number}",
                    REGISTERED,
                    *("--webui-port", "0", "--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(self._folder / f"work-{number}"), self.url),
                )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _start(self, name: str, told: str, *arguments: str) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        what = name.partition("-")[0]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "JAVA_HOME": str(java_home(os.environ)),
            "PYSPARK_PYTHON": sys.executable,
        }
        main = f"org.apache.spark.deploy.{what}.{what.capitalize()}"
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", main, "--host", HOST, *arguments],
                env=environment,
                cwd=self._folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        deadline = time.monotonic() + START_SECONDS_MAX
        while told not in log.read_text(errors="replace"):
            assert process.poll() is None, f"{name} ended:\n{log.read_text()}"
            assert time.monotonic() < deadline, f"{name} is not ready:\n{log.read_text()}"
            time.sleep(0.1)

    def _end(self) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                # Its executors are in its group.
                os.killpg(process.pid, 9)
            process.wait()
