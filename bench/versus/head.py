"""What a reader must know to judge the figures: machine, versions, settings, date, and the command that made them."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version

import psutil

from bench.broker_process import ROOT, free_bytes
from bench.report import cpu_model
from bench.scale import GB
from bench.versus.java import BROKER_OPTIONS
from bench.versus.kafka_jars import KafkaJars
from bench.versus.sizes import Sizes

PACKAGES = ("respool", "uvloop", "confluent-kafka", "kafka-python", "aiokafka", "pyarrow")


def head_of(jars: KafkaJars, sizes: Sizes, command: str) -> dict[str, str]:
    memory_gb = psutil.virtual_memory().total / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return {
        "date": datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": f"`{command}`",
        "machine": f"{os.cpu_count()} cores ({cpu_model()}), {memory_gb:.0f} GB memory, Linux {platform.release()}, "
        f"{free_bytes() / GB:.0f} GB of free disk",
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "versions": f"Apache Kafka {jars.version}, {_java_version()}, Python {sys.version.split()[0]}, {packages}, "
        f"Respool's source at {_commit()}",
        "Kafka": f"one KRaft node, default settings, `{' '.join(BROKER_OPTIONS)}`",
        "Respool": "one broker, default settings",
        "both": "fresh data folders on the same disk; groups form at once, which no figure contains",
        "rounds": f"{sizes.rounds}, contenders in turn within each; {sizes.rounds_start} of starts with a large log",
    }


def _java_version() -> str:
    done = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    first = (done.stderr or done.stdout).splitlines()[:1]
    return first[0].replace('"', "") if first else "an unknown Java"


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    return done.stdout.strip() or "an unknown commit"
