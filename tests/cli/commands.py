"""The command line against one broker: `commands("view", "list")`."""

import json
from typing import Any

from cli.running import Ended, Run
from respool.testing import Broker


class Commands:
    def __init__(self, run: Run, broker: Broker) -> None:
        self._run = run
        self._broker = broker

    def __call__(self, *arguments: str, code: int = 0) -> Ended:
        ended = self._run(*arguments, "--broker", self._broker.bootstrap)
        assert ended.code == code, f"{ended.code}: {ended.out}\n{ended.err}"
        return ended

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").out)
