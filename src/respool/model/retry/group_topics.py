"""The names of a group's topics: `retry.<group>` for messages to be handled again, `dlq.<group>` for dead letters.

A group id may have any characters and any length, a topic's name may not. Where the id does not fit, its other
characters become `_`, it is shortened, and `-` with 8 hex digits of its SHA-256 follows: `orders/eu` and `orders:eu`
have topics of their own. Programs in other languages compute the same names from this rule.
"""

import hashlib
import re

from respool.model.ids import TOPIC_NAME_LENGTH_MAX

RETRY_PREFIX = "retry."
DEAD_LETTER_PREFIX = "dlq."

_PART_LENGTH_MAX = TOPIC_NAME_LENGTH_MAX - max(len(RETRY_PREFIX), len(DEAD_LETTER_PREFIX))
_DIGEST_LENGTH = 8
_OTHER_CHARACTERS = re.compile(r"[^a-zA-Z0-9._-]")


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + _part_for(group)


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + _part_for(group)


def _part_for(group: str) -> str:
    """The part of the names that stands for the group, the same in both."""
    part = _OTHER_CHARACTERS.sub("_", group)
    if part == group and len(part) <= _PART_LENGTH_MAX:
        return part
    # A group id from Python may have half of a surrogate pair; a broker's has none.
    digest = hashlib.sha256(group.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{part[: _PART_LENGTH_MAX - _DIGEST_LENGTH - 1]}-{digest}"
