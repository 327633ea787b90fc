"""Why a topic refused messages, and what to do about it.

The client library passes on the broker's error code, not its words. Which of the topic's settings it was can be told
from the code and the settings.
"""

from collections.abc import Mapping
from typing import NamedTuple

from respool.model.quantities import counted, human_bytes
from respool.model.times import format_duration_ms

# The client tries again where replicas are missing, so that it may also come out as a message whose time was over.
TOO_FEW_REPLICAS = {"NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "_MSG_TIMED_OUT"}


class Refusal(NamedTuple):
    why: str
    hint: str


class Replicas(NamedTuple):
    """How many a partition has, and how many of them are in sync."""

    held: int
    in_sync: int


def explain(
    code: str, *, topic: str, settings: Mapping[str, str], replicas: Replicas | None = None
) -> Refusal | None:
    """The topic's setting behind an error code, by its Kafka name; None when no setting explains it.

    `replicas` are the partition's; None where they are not known or do not matter.
    """
    try:
        if code in TOO_FEW_REPLICAS:
            return _too_few_replicas(topic, settings, replicas)
        return _explain(code, topic, settings)
    except (KeyError, ValueError):
        # Another broker than ours, whose settings are others.
        return None


def _explain(code: str, topic: str, settings: Mapping[str, str]) -> Refusal | None:
    match code:
        case "_UNKNOWN_PARTITION":
            return Refusal(
                f"{topic} has fewer partitions than that",
                "without --keep-partition and --partition, the key decides the partition",
            )
        case "MSG_SIZE_TOO_LARGE":
            limit = int(settings["max.message.bytes"])
            return Refusal(
                f"{topic} takes at most {limit:,} bytes at once ({human_bytes(limit)}, max.message.bytes)",
                f"raise it with: respool topic alter {topic} --set max.message.bytes=BYTES; "
                "or compress: --compression zstd",
            )
        case "INVALID_RECORD" if "compact" in settings["cleanup.policy"]:
            return Refusal(
                f"{topic} keeps the newest message of each key (cleanup.policy={settings['cleanup.policy']}), so every "
                "message needs a key",
                "give one with --key, with --key-separator, or in --json-lines",
            )
        case "POLICY_VIOLATION" if settings["respool.mirror"] == "true":
            return Refusal(
                f"{topic} is a mirror of another cluster's topic (respool.mirror=true): only respool mirror writes it",
                f"produce to that cluster; or, to write here: respool mirror promote {topic} --to HOST:PORT",
            )
        case "INVALID_TIMESTAMP":
            before, after = (
                _span(settings[f"message.timestamp.{side}.max.ms"]) for side in ("before", "after")
            )
            return Refusal(
                f"{topic} takes timestamps at most {before} before and {after} after the broker's clock "
                "(message.timestamp.before.max.ms, message.timestamp.after.max.ms)",
                f"send other timestamps, or widen it with: respool topic alter {topic} --set "
                "message.timestamp.after.max.ms=TIME",
            )
    return None


def _too_few_replicas(
    topic: str, settings: Mapping[str, str], replicas: Replicas | None
) -> Refusal | None:
    if replicas is None:
        return None
    if not replicas.in_sync:
        return Refusal(
            f"nobody leads a partition of {topic}: none of the brokers that have all of it is there",
            "start them; what has become of them is shown by: respool cluster status --etcd HOST:PORT",
        )
    # No more than there are: that is how the broker takes it.
    needed = min(int(settings["min.insync.replicas"]), replicas.held)
    if replicas.in_sync >= needed:
        return None
    return Refusal(
        f"{topic} takes messages with {counted(needed, 'replica')} in sync (min.insync.replicas), "
        f"and has {replicas.in_sync}",
        f"start the brokers that are missing, or lower it: respool topic alter {topic} --set min.insync.replicas=N; "
        "or send with --acks 1",
    )


def _span(ms: str) -> str:
    # The largest number there is stands for no limit.
    return "any time" if int(ms) >= 2**63 - 1 else format_duration_ms(int(ms))
