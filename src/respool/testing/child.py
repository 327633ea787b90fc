"""The life of a process that has a test's broker in it. `child_home.py` is the other end of its channel."""

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from typing import Any

from respool.node.log_format import set_up_logging
from respool.testing.plan import Plan, TopicPlan


def main(channel_fd: int) -> None:
    """The child's life."""
    # Ctrl-C is for whoever runs the tests; they tell us by closing the channel.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # kio registers strategies where hypothesis is installed: a fifth of a second at every start, of use to nobody here.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    set_up_logging(level="info", log_format="text")
    from respool.testing.thread_home import ThreadHome

    home: ThreadHome | None = None
    with socket.socket(fileno=channel_fd) as channel, channel.makefile("r") as orders:
        for line in orders:
            order = json.loads(line)
            answer: dict[str, Any]
            try:
                if order["name"] == "open":
                    home = ThreadHome(_plan_from(order["arguments"]["plan"]))
                    answer = {"result": None}
                else:
                    assert home is not None
                    answer = {"result": home.call(order["name"], **order["arguments"])}
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the one who asked
                answer = {"error": type(error).__name__, "message": str(error)}
            try:
                channel.sendall((json.dumps(answer) + "\n").encode())
            except OSError:
                break
    if home is not None:
        # Nobody is left to be told how that went.
        with suppress(Exception):
            home.close()
    # Threads that are stuck must not keep the process.
    os._exit(0)


def _plan_from(fields: dict[str, Any]) -> Plan:
    topics = {name: TopicPlan(**one) for name, one in fields.pop("topics").items()}
    return Plan(topics=topics, **fields)
