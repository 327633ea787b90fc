"""A load client of RocketMQ, in Java: its own clients are what its users have.

As a command: `FOLDER COMMAND NAME-SERVER ARGUMENTS...`; the commands are those of `RocketMqLoad.java`.
"""

import os
import sys
from pathlib import Path

from bench.versus.java import TOOL_OPTIONS
from bench.versus.rocketmq import rocketmq_command

PROGRAM = Path(__file__).with_name("RocketMqLoad.java")
# It looks for new topics and for its share of them often, instead of every half minute; no figure contains that.
OPTIONS = (
    "-Drocketmq.client.rebalance.waitInterval=1000",
    "-Drocketmq.client.rebalance.minInterval=0",
)


def main() -> None:
    folder, *arguments = sys.argv[1:]
    command = rocketmq_command(
        Path(folder), str(PROGRAM), *arguments, options=(*TOOL_OPTIONS, *OPTIONS)
    )
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
