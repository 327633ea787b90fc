"""Java command lines, with the options that Kafka's own scripts give."""

from collections.abc import Sequence

from bench.versus.kafka_jars import KafkaJars
from bench.versus.leash import LEASH

# As kafka-server-start and kafka-run-class do.
BROKER_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# As kafka-producer-perf-test and kafka-consumer-perf-test do.
TOOL_OPTIONS = ("-Xmx512M", *BROKER_OPTIONS[2:])
# Below warnings nothing is said; log lines name their level.
_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)


def java_command(
    jars: KafkaJars, main_class: str, *arguments: str, options: Sequence[str] = TOOL_OPTIONS
) -> list[str]:
    return [*LEASH, "java", *options, *_LOGGING, "-cp", jars.classpath, main_class, *arguments]
