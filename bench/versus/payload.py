"""Messages as text of an exact size: rides as JSON, alike enough for codecs to have something to do.

Kafka's tool can also draw every byte of every message at random, but then it measures its random numbers.
"""

import random
from pathlib import Path

VARIANTS = 10_000
CITIES = ("Bonn", "Essen", "Köln", "Mainz", "Trier")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TAIL = '"}'


def payloads(message_bytes: int, *, count: int = VARIANTS) -> list[str]:
    rng = random.Random(message_bytes)
    return [_ride(rng, message_bytes) for _ in range(count)]


def write_payloads(folder: Path, message_bytes: int) -> Path:
    """One on each line."""
    path = folder / f"payloads-{message_bytes}.txt"
    path.write_text("\n".join(payloads(message_bytes)) + "\n")
    return path


def _ride(rng: random.Random, message_bytes: int) -> str:
    head = (
        f'{{"ride":{rng.randrange(10**9)},"city":"{rng.choice(CITIES)}",'
        f'"driver":{rng.randrange(10**5)},"fare":{rng.randrange(10**4) / 100},"note":"'
    )
    room = message_bytes - len(head.encode()) - len(TAIL)
    if room < 0:
        raise ValueError(f"a ride does not fit into {message_bytes} bytes")
    words = "".join(rng.choices(LETTERS, k=min(room, 32)))
    return head + (words * (room // max(1, len(words)) + 1))[:room] + TAIL
