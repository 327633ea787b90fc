"""Amounts in messages for people: `2,000 messages`, `4.0 KiB`."""


def counted(number: int, noun: str) -> str:
    """1 -> '1 message', 2000 -> '2,000 messages'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def human_bytes(size: int) -> str:
    """4096 -> '4.0 KiB'."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def part_of_bytes(part: int, whole: int) -> str:
    """(1024, 4096) -> '1.0 KiB of 4.0 KiB'."""
    return f"{human_bytes(part)} of {human_bytes(whole)}"


def partition_numbers(count: int) -> str:
    """4 -> 'its partitions are 0 to 3'."""
    return f"its partitions are 0 to {count - 1}" if count > 1 else "its only partition is 0"
