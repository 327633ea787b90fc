"""Whether a topic gets more and fewer partitions by itself."""

from enum import StrEnum


class ElasticMode(StrEnum):
    OFF = "off"
    # Its records have no keys, or no key needs one partition: any number of partitions will do.
    UNKEYED = "unkeyed"
    # Also with keys: fewer partitions keep each key in one, more move keys, as in Kafka.
    ON = "on"
