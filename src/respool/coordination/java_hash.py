"""The coordinator's partition for a group or transactional id: Java's String.hashCode, as in Kafka's tools."""


def java_string_hash(text: str) -> int:
    """31 * h + c over UTF-16 code units, in 32 signed bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value


def partition_for(name: str, partition_count: int) -> int:
    value = java_string_hash(name)
    # In Java the absolute value of the smallest integer is itself; Kafka uses 0 for it.
    return 0 if value == -(2**31) else abs(value) % partition_count
