"""Kafka's own performance tools as loads: ProducerPerformance and ConsumerPerformance, each in a JVM of its own."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.load_client import LoadFailed
from bench.versus.arena import Done
from bench.versus.java import java_command
from bench.versus.kafka_jars import KafkaJars
from bench.versus.perf_output import complaints, consumed, produced_per_s

RUN_SECONDS_MAX = 600.0
SILENCE_MS_MAX = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PerfTool:
    jars: KafkaJars
    # Told what a tool's log says, if it says something: each is a finding.
    on_complaint: Callable[[str], None]

    def produce(
        self,
        address: str,
        topic: str,
        *,
        messages: int,
        warm_up: int,
        payload_file: Path,
        producers: int,
        settings: Mapping[str, str],
    ) -> Done:
        command = java_command(
            self.jars,
            "org.apache.kafka.tools.ProducerPerformance",
            f"--bootstrap-server={address}",
            f"--topic={topic}",
            f"--num-records={messages // producers}",
            f"--warmup-records={warm_up // producers}",
            "--throughput=-1",
            f"--payload-file={payload_file}",
            "--command-property",
            *(f"{name}={value}" for name, value in settings.items()),
        )
        outputs = self._run([command] * producers)
        return Done(
            messages=messages // producers * producers,
            messages_per_s=sum(produced_per_s(output) for output in outputs),
        )

    def consume(self, address: str, topic: str, *, messages: int) -> Done:
        command = java_command(
            self.jars,
            "org.apache.kafka.tools.ConsumerPerformance",
            f"--bootstrap-server={address}",
            f"--topic={topic}",
            f"--num-records={messages}",
            f"--timeout={SILENCE_MS_MAX}",
        )
        (output,) = self._run([command])
        count, per_s = consumed(output)
        if count < messages:
            raise LoadFailed(f"Kafka's consumer got {count} of {messages} messages")
        return Done(messages=count, messages_per_s=per_s)

    def _run(self, commands: Sequence[list[str]]) -> list[str]:
        """All at once; what each printed."""
        processes: list[subprocess.Popen[str]] = []
        try:
            # One by one, so that all that were started are ended.
            processes.extend(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for command in commands
            )
            deadline = time.monotonic() + RUN_SECONDS_MAX
            return [self._output(one, deadline - time.monotonic()) for one in processes]
        finally:
            for one in processes:
                one.kill()
                one.communicate()

    def _output(self, process: "subprocess.Popen[str]", seconds_left: float) -> str:
        try:
            output, errors = process.communicate(timeout=max(0.0, seconds_left))
        except subprocess.TimeoutExpired:
            raise LoadFailed(f"Kafka's tool took more than {RUN_SECONDS_MAX:.0f} s") from None
        for complaint in complaints(errors):
            self.on_complaint(complaint)
        if process.returncode:
            raise LoadFailed(
                f"Kafka's tool ended with exit code {process.returncode}: {errors.strip()[-1000:]}"
            )
        return output
