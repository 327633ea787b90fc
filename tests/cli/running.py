"""What the `run` fixture is and gives back."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


class Run(Protocol):
    def __call__(self, *arguments: str, stdin: bytes = b"") -> Ended: ...
