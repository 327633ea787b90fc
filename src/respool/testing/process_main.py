"""The main function of a process that runs a test's broker; `process_backend.py` has the other end of its channel."""

import json
import os
import signal
import socket
from contextlib import suppress
from typing import Any

from respool.node.log_format import set_up_logging
from respool.testing.broker_plan import TestBrokerPlan, TopicPlan


def main(channel_fd: int) -> None:
    """Run commands from the channel until it is closed."""
    # Ctrl-C is handled by the test runner, which closes the channel when it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_up_logging(level="info", log_format="text")
    from respool.testing.thread_backend import ThreadBackend

    backend: ThreadBackend | None = None
    with socket.socket(fileno=channel_fd) as channel, channel.makefile("r") as commands:
        for line in commands:
            command = json.loads(line)
            answer: dict[str, Any]
            try:
                if command["name"] == "open":
                    backend = ThreadBackend(_plan_from(command["arguments"]["plan"]))
                    answer = {"result": None}
                else:
                    assert backend is not None
                    answer = {"result": backend.call(command["name"], **command["arguments"])}
            except Exception as error:  # noqa: BLE001 - it is raised in the test's process
                answer = {"error": type(error).__name__, "message": str(error)}
            try:
                channel.sendall((json.dumps(answer) + "\n").encode())
            except OSError:
                break
    if backend is not None:
        # The other end is closed: the result cannot be reported.
        with suppress(Exception):
            backend.close()
    # A blocked thread must not keep the process alive.
    os._exit(0)


def _plan_from(fields: dict[str, Any]) -> TestBrokerPlan:
    topics = {name: TopicPlan(**one) for name, one in fields.pop("topics").items()}
    return TestBrokerPlan(topics=topics, **fields)
