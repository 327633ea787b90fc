"""Kafka's command line tools with a cluster: all in one JVM, for starting one costs more than most tools do."""

import base64
import re
import select
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from bench.versus.java import java_command

from support.java_process import OPTIONS, PROGRAMS, interop_jars

ANSWER_SECONDS_MAX = 90.0
_PACKAGE = "org.apache.kafka.tools"
# As Kafka's scripts in bin/ choose them.
MAIN_CLASSES = {
    "kafka-acls": "AclCommand",
    "kafka-broker-api-versions": "BrokerApiVersionsCommand",
    "kafka-client-metrics": "ClientMetricsCommand",
    "kafka-cluster": "ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "consumer.ConsoleConsumer",
    "kafka-console-producer": "ConsoleProducer",
    "kafka-consumer-groups": "consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "ConsumerPerformance",
    "kafka-delegation-tokens": "DelegationTokenCommand",
    "kafka-delete-records": "DeleteRecordsCommand",
    "kafka-dump-log": "DumpLogSegments",
    "kafka-e2e-latency": "EndToEndLatency",
    "kafka-features": "FeatureCommand",
    "kafka-get-offsets": "GetOffsetShell",
    "kafka-groups": "GroupsCommand",
    "kafka-leader-election": "LeaderElectionCommand",
    "kafka-log-dirs": "LogDirsCommand",
    "kafka-metadata-quorum": "MetadataQuorumCommand",
    "kafka-producer-perf-test": "ProducerPerformance",
    "kafka-reassign-partitions": "reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "ReplicaVerificationTool",
    "kafka-share-groups": "consumer.group.ShareGroupCommand",
    "kafka-streams-application-reset": "StreamsResetter",
    "kafka-streams-groups": "streams.StreamsGroupCommand",
    "kafka-topics": "TopicCommand",
    "kafka-transactions": "TransactionsCommand",
    "kafka-verifiable-consumer": "VerifiableConsumer",
    "kafka-verifiable-producer": "VerifiableProducer",
}


class Printed(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def everything(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


class KafkaTools:
    """Use it as a context: `tools("kafka-topics", "--list")` is what that prints, and it must end well."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder
        self._log = folder / "tools.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> str:
        printed = self.ask(tool, *arguments, stdin=stdin)
        told = f"{tool} {' '.join(arguments)}\n{printed.everything}"
        assert printed.code == 0, told
        assert "ERROR" not in printed.err, told
        assert "Error" not in printed.out, told
        assert "Exception" not in printed.out + printed.err, told
        return printed.out

    def ask(self, tool: str, *arguments: str, stdin: str = "") -> Printed:
        """However it ends."""
        return self.run(tool, *_with_server(tool, arguments, self.bootstrap), stdin=stdin)

    def run(self, tool: str, *arguments: str, stdin: str = "") -> Printed:
        """With these arguments and no others."""
        fields = (main_class(tool), stdin, *arguments)
        request = b" ".join(base64.b64encode(one.encode()) for one in fields) + b"\n"
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request)
        process.stdin.flush()
        if not select.select([process.stdout], [], [], ANSWER_SECONDS_MAX)[0]:
            self._stop()
            raise AssertionError(f"no end in {ANSWER_SECONDS_MAX:.0f} s: {tool} {arguments}")
        reply = process.stdout.readline().decode().rstrip("\n").split(" ")
        if len(reply) != 3:
            self._stop()
            raise AssertionError(f"it ended the JVM: {tool} {arguments}")
        out, err = (base64.b64decode(one).decode(errors="replace") for one in reply[1:])
        return Printed(int(reply[0]), out, err)

    def apart(self, tool: str, *arguments: str) -> Printed:
        """In a JVM of its own, for a tool that ends it."""
        done = subprocess.run(
            java_command(
                interop_jars(),
                main_class(tool),
                *_with_server(tool, arguments, self.bootstrap),
                options=OPTIONS,
            ),
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS_MAX,
            check=False,
        )
        return Printed(done.returncode, done.stdout, done.stderr)

    def written(self, name: str, text: str) -> str:
        """A file with this text, by its path."""
        file = self.folder / name
        file.write_text(text)
        return str(file)

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None:
            program = str(PROGRAMS / "ToolServer.java")
            command = java_command(interop_jars(), program, options=OPTIONS)
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
                )
        return self._process

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main_class(tool: str) -> str:
    name = MAIN_CLASSES[tool]
    return name if name.startswith("kafka.") else f"{_PACKAGE}.{name}"


def _with_server(tool: str, arguments: Sequence[str], bootstrap: str) -> list[str]:
    server = ["--bootstrap-server", bootstrap]
    if tool == "kafka-cluster":
        return [arguments[0], *server, *arguments[1:]]
    return [*server, *arguments]


def rows(table: str) -> list[dict[str, str]]:
    """Of a table whose cells have no blanks in them, from the header on: warnings may be before it."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    headers = [number for number, line in enumerate(lines) if len(line) > 1 and _is_header(line[0])]
    if not headers:
        return []
    header, *others = lines[headers[0] :]
    return [dict(zip(header, line, strict=False)) for line in others]


def _is_header(word: str) -> bool:
    """GROUP, or TransactionalId, as tools have them."""
    return word.isupper() or bool(re.fullmatch(r"(?:[A-Z][a-z]+){2,}|Topic", word))
