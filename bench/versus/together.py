"""Several load clients at once against one broker: all ready, then all go, then what each did."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.load_client import LoadClient


def run_together(commands: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Each command is a module that ends up in `announce`, and its arguments."""
    with ExitStack() as stack:
        clients = [stack.enter_context(_client(command)) for command in commands]
        for client in clients:
            client.wait_until_ready()
        for client in clients:
            client.go()
        return [client.wait_for_result() for client in clients]


@contextmanager
def _client(command: Sequence[str]) -> Iterator[LoadClient]:
    client = LoadClient(*command)
    try:
        yield client
    finally:
        client.end()


def rate(result: dict[str, Any]) -> float:
    return float(result["messages"] / result["seconds"])
