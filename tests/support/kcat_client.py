"""kcat as a `KafkaClient`: its command line for writing, its JSON for reading.

It has one set of headers for all messages of a run, no timestamps, and writes a null for an empty key or value.
"""

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from support.message import DEFAULT_FETCH, FetchSettings, Headers, Message, Place, Received

KCAT = shutil.which("kcat")
MISSING = "kcat is not on the PATH (Debian: apt-get install kcat)"
HEADERS: Headers = (("from", b"kcat"), ("from", b"again"))
TIMEOUT_S = 60.0
# Between key and value in what kcat is given; not in any test's data.
DELIMITER = "\t"
EARLIEST = -2
LATEST = -1


class KcatFailed(Exception):
    """kcat ended with an error; its standard error is the message."""


def kcat(address: str, *arguments: str, given: str = "") -> str:
    """Run kcat against a broker and return what it printed."""
    assert KCAT is not None, MISSING
    done = subprocess.run(
        [KCAT, "-b", address, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise KcatFailed(done.stderr)
    return done.stdout


class KcatClient:
    name = "kcat"

    def express(self, message: Message) -> Message:
        return replace(
            message,
            key=message.key or None,
            value=message.value or None,
            headers=HEADERS,
            timestamp_ms=None,
        )

    def write(
        self,
        address: str,
        place: Place,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        idempotent: bool = True,
        acks: str = "all",
    ) -> None:
        lines = [
            f"{(one.key or b'').decode()}{DELIMITER}{(one.value or b'').decode()}\n"
            for one in messages
        ]
        headers = [f"-H{name}={(value or b'').decode()}" for name, value in HEADERS]
        properties = [
            f"-Xcompression.codec={codec}",
            f"-Xenable.idempotence={str(idempotent).lower()}",
            f"-Xacks={acks}",
        ]
        kcat(
            address, "-P", "-Z", f"-K{DELIMITER}", "-t", place[0], "-p", str(place[1]),
            *headers, *properties, given="".join(lines),
        )  # fmt: skip

    def read(self, address: str, places: Iterable[Place]) -> Mapping[Place, list[Received]]:
        return {place: self._read_one(address, place) for place in places}

    def _read_one(self, address: str, place: Place) -> list[Received]:
        # It ends when a fetch at the end of the partition comes back empty; that should not take long.
        printed = kcat(
            address, "-C", "-q", "-e", "-J", "-u", "-t", place[0], "-p", str(place[1]),
            "-o", "beginning", "-Xfetch.wait.max.ms=10",
        )  # fmt: skip
        return [received(line) for line in printed.splitlines()]

    def read_from(
        self,
        address: str,
        place: Place,
        offset: int,
        *,
        count: int,
        fetch: FetchSettings = DEFAULT_FETCH,
    ) -> list[Received]:
        printed = kcat(
            address, "-C", "-q", "-J", "-u", "-t", place[0], "-p", str(place[1]), "-o", str(offset),
            "-c", str(count), f"-Xfetch.min.bytes={fetch.bytes_min}",
            f"-Xmax.partition.fetch.bytes={fetch.partition_bytes_max}",
            f"-Xfetch.wait.max.ms={fetch.wait_ms}",
        )  # fmt: skip
        return [received(line) for line in printed.splitlines()]

    def bounds(self, address: str, place: Place) -> tuple[int, int]:
        return self._query(address, place, EARLIEST), self._query(address, place, LATEST)

    def offset_at(self, address: str, place: Place, time_ms: int) -> int | None:
        found = self._query(address, place, time_ms)
        # For "none" librdkafka says the end.
        return None if found == LATEST else found

    def _query(self, address: str, place: Place, wish: int) -> int:
        """Prints `topic [partition] offset N`."""
        printed = kcat(address, "-Q", "-t", f"{place[0]}:{place[1]}:{wish}")
        return int(printed.split()[-1])


def received(line: str) -> Received:
    message = json.loads(line)
    headers = message.get("headers", [])
    return Received(
        offset=message["offset"],
        timestamp_ms=message["ts"],
        value=_bytes(message["payload"]),
        key=_bytes(message["key"]),
        headers=tuple(
            (name, _bytes(value)) for name, value in zip(headers[::2], headers[1::2], strict=True)
        ),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
