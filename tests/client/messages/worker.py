"""A program that uses the message client, as a process that is killed at the worst moment.

The process's side (`main`) handles messages: its effect is a line in a file, or, exactly once, a message in another
topic. It kills itself (`kill -9`) at the offset it is told, before or after the effect, or is killed from outside;
after `handled_max` effects it waits for that. The test's side is `Worker`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import respool

# The last message of a partition: nothing to handle. Who has read it in every partition ends.
END = b"end"
# So that a kill from outside finds it at work.
WORK_S = 0.001


class Worker:
    def __init__(self, address: str, **wish: Any) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "client.messages.worker",
                json.dumps({"address": address, **wish}),
            ],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Its exit code; -9 when it was killed, by itself or another. Anything else must be 0."""
        _, errors = self._process.communicate(timeout=180)
        code = self._process.returncode
        assert code in {0, -signal.SIGKILL}, errors[-4000:].decode()
        return code


class Effects:
    """The process's side of what it does with a message."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self._wish = wish
        self._file = os.open(wish["effects"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._handled = 0

    def handle(self, message: respool.Message) -> None:
        self.maybe_die(message, "before")
        self.work(message)
        self.maybe_die(message, "after")

    def work(self, message: respool.Message) -> None:
        while self._handled == self._wish.get("handled_max"):
            signal.pause()
        self._handled += 1
        time.sleep(WORK_S)
        # One write is one line, also when the next moment is the last.
        os.write(self._file, (message.value or b"") + b"\n")

    def maybe_die(self, message: respool.Message, when: str) -> None:
        if self._wish.get("die_at") == message.offset and self._wish.get("die") == when:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    wish = json.loads(sys.argv[1])
    if wish["delivery"] == "exactly-once":
        _transform(wish)
    elif wish.get("is_async"):
        asyncio.run(_handle_async(wish))
    else:
        _handle(wish)


def _arguments(wish: dict[str, Any]) -> dict[str, Any]:
    return {
        "topics": wish["source"],
        "group": wish["name"],
        "bootstrap": wish["address"],
        "delivery": wish["delivery"],
        "pace": wish.get("pace", "balanced"),
        "commit_every_ms": wish.get("commit_every_ms", 50),
        # The next life takes this one's partitions at once.
        "instance": wish["name"],
    }


class Ends:
    """Which partitions were read to their end."""

    def __init__(self, wish: dict[str, Any]) -> None:
        self._places: set[tuple[str, int]] = set()
        self._expected: int = wish["partitions"]

    @property
    def is_everywhere(self) -> bool:
        return len(self._places) == self._expected

    def is_here(self, message: respool.Message) -> bool:
        if message.value != END:
            return False
        self._places.add(message.place)
        return True


def _handle(wish: dict[str, Any]) -> None:
    effects, ends = Effects(wish), Ends(wish)
    with respool.Consumer(**_arguments(wish)) as consumer:
        for message in consumer:
            if not ends.is_here(message):
                effects.handle(message)
            elif ends.is_everywhere:
                break


async def _handle_async(wish: dict[str, Any]) -> None:
    effects, ends = Effects(wish), Ends(wish)
    async with respool.AsyncConsumer(**_arguments(wish)) as consumer:
        async for message in consumer:
            if not ends.is_here(message):
                effects.handle(message)
            elif ends.is_everywhere:
                break


def _transform(wish: dict[str, Any]) -> None:
    effects, ends = Effects(wish), Ends(wish)
    with (
        respool.Producer(
            wish["address"],
            delivery="exactly-once",
            transactional_id=wish["name"],
            pace="latency",
        ) as producer,
        respool.Consumer(**_arguments(wish)) as consumer,
    ):
        for transaction in consumer.transactions(producer, messages_max=50):
            with transaction:
                for message in transaction:
                    if ends.is_here(message):
                        continue
                    effects.maybe_die(message, "before")
                    # Only for who wants to know how far it is: this file knows no transactions.
                    effects.work(message)
                    producer.send(
                        wish["target"], message.value, message.key, partition=message.partition
                    )
                    if wish.get("die_at") == message.offset:
                        producer.flush()
                    effects.maybe_die(message, "after")
            if transaction.is_committed and ends.is_everywhere:
                break


if __name__ == "__main__":
    main()
