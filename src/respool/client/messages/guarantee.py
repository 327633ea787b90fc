"""The settings of each delivery guarantee on both sides, and the raw settings that would break it. Pure.

                    producer                                     consumer
    at-most-once    acks=0, no retries                           commits, then returns messages
    at-least-once   acks=all, idempotent, retried                returns messages, then commits
    exactly-once    transactions                                 commits in the producer's transaction

Consumers of all three are read_committed. Callers may add raw settings; one that a guarantee requires cannot be
changed, and one that has an argument must be given there.
"""

from collections.abc import Mapping
from typing import Literal

from respool.client.messages.errors import BadArgument, SettingContradicts

Delivery = Literal["at-most-once", "at-least-once", "exactly-once"]
GUARANTEES: tuple[Delivery, ...] = ("at-most-once", "at-least-once", "exactly-once")

Settings = Mapping[str, object]

# Synonyms in librdkafka.
_ALIASES = {
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "queue.buffering.max.ms": "linger.ms",
    "compression.codec": "compression.type",
    "metadata.broker.list": "bootstrap.servers",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
}
# Setting -> what to use instead.
_ARGUMENTS = {
    "bootstrap.servers": "give bootstrap=",
    "transactional.id": "give transactional_id=",
    "partitioner": "give partitioner=",
    "group.id": "give group=",
    "group.instance.id": "give instance=",
    "auto.offset.reset": "give start=",
    "enable.auto.commit": "commits follow delivery=",
    "enable.auto.offset.store": "commits follow delivery=",
    "enable.partition.eof": "a consumer waits at the end; give idle_s= to stop there",
    "on_commit": "a commit that failed raises",
    "on_delivery": "a delivery that failed raises",
    "delivery.report.only.error": "a delivery that failed raises",
    "error_cb": "errors raise",
    "logger": "librdkafka's log goes to the logger 'respool.client.messages'",
}

_PRODUCER: Mapping[str, Settings] = {
    "at-most-once": {"acks": "0", "retries": 0, "enable.idempotence": False},
    "at-least-once": {"acks": "all", "enable.idempotence": True},
    "exactly-once": {
        "acks": "all",
        "enable.idempotence": True,
        # Otherwise librdkafka forgets the group's coordinator when all brokers were briefly unreachable, and
        # send_offsets_to_transaction waits forever (its issues 5456 and 5511).
        "metadata.recovery.strategy": "none",
    },
}
# Allowed values of settings on which a guarantee depends.
_ALLOWED: Mapping[str, Mapping[str, frozenset[str]]] = {
    "at-most-once": {
        "acks": frozenset({"0", "1", "all"}),
        "retries": frozenset({"0"}),
        "enable.idempotence": frozenset({"false"}),
    },
    # As documented: acks=1 is at least once, too, unless the leader fails.
    "at-least-once": {"acks": frozenset({"1", "all"})},
    "exactly-once": {
        "acks": frozenset({"all"}),
        "enable.idempotence": frozenset({"true"}),
        "isolation.level": frozenset({"read_committed"}),
    },
}
_WHY = {
    "acks": {
        "at-least-once": "without an answer nobody knows that it must be sent again",
        "exactly-once": "a transaction counts what all in-sync replicas have",
    },
    "retries": {
        "at-most-once": "what is sent again may be there twice",
        "at-least-once": "what is not sent again may be lost",
        "exactly-once": "what is not sent again may be lost",
    },
    "enable.idempotence": {
        "at-most-once": "it goes with sending again",
        "exactly-once": "transactions stand on it",
    },
    "isolation.level": {"exactly-once": "what is aborted would be handled too"},
}


def check_delivery(delivery: str) -> None:
    if delivery not in GUARANTEES:
        raise BadArgument(f"delivery is one of {', '.join(GUARANTEES)}, not {delivery!r}")


def producer_settings(delivery: str, raw: Settings) -> dict[str, object]:
    """Return the guarantee's settings, overridden by the caller's.

    Raises:
        SettingContradicts: one of them breaks the guarantee, or duplicates an argument.
    """
    given = _checked(delivery, raw)
    made = {**_PRODUCER[delivery], **given}
    if delivery == "at-least-once" and made["acks"] == "1" and "enable.idempotence" not in given:
        # librdkafka requires acks=all for idempotence.
        made["enable.idempotence"] = False
    return made


def consumer_settings(delivery: str, raw: Settings) -> dict[str, object]:
    """This client handles commits under every guarantee. A deleted offset raises an error, with no automatic reset."""
    given = _checked(delivery, raw)
    return {
        "isolation.level": "read_committed",
        **given,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
    }


def _checked(delivery: str, raw: Settings) -> dict[str, object]:
    check_delivery(delivery)
    made: dict[str, object] = {}
    for name, value in raw.items():
        key = _ALIASES.get(name, name)
        if key in _ARGUMENTS:
            raise SettingContradicts(f"settings has {name!r}: {_ARGUMENTS[key]}")
        plain = _plain(key, value)
        allowed = _ALLOWED[delivery].get(key)
        if (allowed is not None and plain not in allowed) or (
            key == "retries" and plain == "0" and delivery != "at-most-once"
        ):
            advice = f"; leave it out, or say {' or '.join(sorted(allowed))}" if allowed else ""
            raise SettingContradicts(
                f"settings has {name}={value!r}, which delivery={delivery!r} cannot keep its promise with:"
                f" {_WHY[key].get(delivery, 'it means something else')}{advice}"
            )
        made[key] = plain if key == "acks" else value
    return made


def _plain(key: str, value: object) -> str:
    """Return a value as librdkafka parses it."""
    text = str(value).strip().lower()
    if key == "acks" and text == "-1":
        return "all"
    if key == "enable.idempotence" and text in {"1", "t", "true"}:
        return "true"
    if key == "enable.idempotence" and text in {"0", "f", "false"}:
        return "false"
    return text
