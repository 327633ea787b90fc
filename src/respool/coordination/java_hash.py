"""The coordinator partition of a group or transactional id: by Java's String.hashCode, as in Kafka."""


def java_string_hash(text: str) -> int:
    """31 * h + c over UTF-16 code units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFF_FFFF
    return value - 2**32 if value >= 2**31 else value


def partition_for(name: str, partition_count: int) -> int:
    value = java_string_hash(name)
    # In Java, the absolute value of the smallest integer is that integer; Kafka uses 0 instead.
    return 0 if value == -(2**31) else abs(value) % partition_count
