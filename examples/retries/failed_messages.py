"""What docs/retries.md says of topics and headers, on confluent-kafka alone: for programs without Respool's client."""

import hashlib
import re
import time

from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

# Replaced at each failure; and what the broker added when it delivered the last retry.
REPLACED = re.compile(
    r"__dlq\.errors\..*|respool-(?:error-class|first-failed-at|origin-timestamp|delay|delay-level|deliver-at|schedule"
    r"|schedule-id|time-zone|until|times|cancel|next|sent-at|due-at|delivered-.*|carried-.*)"
)


def topics_of(group: str) -> tuple[str, str]:
    """The retry topic and the dead letters. Group ids that no topic can be named for need the rule of the page."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,243}", group):
        digest = hashlib.sha256(group.encode()).hexdigest()[:8]
        group = f"{re.sub(r'[^a-zA-Z0-9._-]', '_', group)[:234]}-{digest}"
    return f"retry.{group}", f"dlq.{group}"


class FailedMessages:
    """Sends failed messages of a group to its retry topic, and after the last attempt to its dead letters."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *,
        partitions: int = 1,
        delays: tuple[str, ...] = ("10s", "1m", "10m", "1h"),
        give_up: tuple[type[Exception], ...] = (),
    ) -> None:
        self.group = group
        self.delays = delays
        self.give_up = give_up
        self.retry_topic, self.dead_letter_topic = topics_of(group)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
            }
        )
        _create(
            AdminClient({"bootstrap.servers": bootstrap}),
            self.retry_topic,
            self.dead_letter_topic,
            partitions,
        )
        found = self._producer.list_topics(timeout=10).topics
        self._partitions = {
            name: len(found[name].partitions) for name in (self.retry_topic, self.dead_letter_topic)
        }

    def attempt_of(self, message: Message) -> int:
        if message.topic() != self.retry_topic:
            return 1
        return int(_headers(message)["__dlq.errors.delivery.count"]) + 1

    def send_on(self, message: Message, error: Exception) -> None:
        """Return when the broker has it; only then may the message's offset be committed.

        Raises:
            KafkaException: it was not written.
        """
        before = _headers(message) if message.topic() == self.retry_topic else {}
        attempt = self.attempt_of(message)
        topic, partition, offset = (
            (before[f"__dlq.errors.{name}"].decode() for name in ("topic", "partition", "offset"))
            if before
            else (message.topic(), str(message.partition()), str(message.offset()))
        )
        timestamp = before.get(
            "respool-origin-timestamp", str(message.timestamp()[1]).encode()
        ).decode()
        headers = [one for one in message.headers() or [] if not REPLACED.fullmatch(one[0])]
        headers += [
            ("__dlq.errors.topic", topic),
            ("__dlq.errors.partition", partition),
            ("__dlq.errors.offset", offset),
            ("__dlq.errors.group", self.group),
            ("__dlq.errors.delivery.count", str(attempt)),
            ("__dlq.errors.message", str(error)[:256]),
            ("respool-error-class", type(error).__name__),
            (
                "respool-first-failed-at",
                before.get("respool-first-failed-at", str(int(time.time() * 1000))),
            ),
            ("respool-origin-timestamp", timestamp),
        ]
        target = self.dead_letter_topic
        if attempt <= len(self.delays) and not isinstance(error, self.give_up):
            target = self.retry_topic
            headers += [
                ("respool-delay", self.delays[attempt - 1]),
                # Sent again after a crash, it replaces the first.
                ("respool-schedule-id", f"{topic}/{partition}/{offset}/{attempt}/{timestamp}"),
            ]
        self._send(target, message, headers, int(partition) % self._partitions[target])

    def _send(self, topic: str, message: Message, headers: list, partition: int) -> None:
        failures = []
        self._producer.produce(
            topic,
            message.value(),
            message.key(),
            partition,
            headers=headers,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        self._producer.flush()
        if failures:
            raise KafkaException(failures[0])


def _headers(message: Message) -> dict[str, bytes]:
    return dict(message.headers() or [])


def _create(admin: AdminClient, retry_topic: str, dead_letter_topic: str, partitions: int) -> None:
    day_ms = 86_400_000
    known = admin.list_topics(timeout=10).topics
    wanted = [
        NewTopic(
            retry_topic,
            partitions,
            config={"respool.delay": "true", "retention.ms": str(14 * day_ms)},
        ),
        NewTopic(dead_letter_topic, partitions, config={"retention.ms": str(30 * day_ms)}),
    ]
    missing = [one for one in wanted if one.topic not in known]
    for created in admin.create_topics(missing).values() if missing else ():
        created.result()
