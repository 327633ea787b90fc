"""The features of Kafka (KIP-584) that this broker has. Each has one level here, which clients see and cannot change.

A feature switches clients or tools to a protocol that must then be complete.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    name: str
    # The level in effect.
    level: int
    # The lowest level that the broker claims to support; 0: the feature could be off.
    level_min: int


FEATURES = (
    # The Kafka release whose behaviour tools may expect: 4.3 (4.3-IV0). Nothing is stored at a metadata version here,
    # so there is no lower one to go back to.
    Feature(name="metadata.version", level=30, level_min=30),
    # Consumer groups of the next generation (KIP-848).
    Feature(name="group.version", level=1, level_min=0),
    # Share groups (KIP-932).
    Feature(name="share.version", level=1, level_min=0),
    # From level 2 on, producers bump their epoch with every transaction, and add partitions by writing to them
    # (KIP-890).
    Feature(name="transaction.version", level=2, level_min=0),
)
