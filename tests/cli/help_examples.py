"""The examples in the help of commands, as they stand on a terminal of 80 columns."""

import re
import shlex
from typing import NamedTuple

from cli.command_tree import all_commands

_BEGIN = re.compile(r"Examples?:")


class Example(NamedTuple):
    # The command in whose help it stands.
    command: tuple[str, ...]
    line: str

    @property
    def pipeline(self) -> list[list[str]]:
        """The words of each command between the pipes. A comment is none of them."""
        lexer = shlex.shlex(self.line, posix=True, punctuation_chars="|")
        lexer.whitespace_split = True
        lexer.commenters = "#"
        found: list[list[str]] = [[]]
        for word in lexer:
            if word == "|":
                found.append([])
            else:
                found[-1].append(word)
        return found


def examples_in(shown: str) -> list[str]:
    """The lines below `Examples:` in the output of `--help`: each is a whole command line."""
    lines = [line.strip() for line in shown.splitlines()]
    begin = next((n for n, line in enumerate(lines) if _BEGIN.fullmatch(line)), len(lines))
    return [line for line in lines[begin + 1 :] if line]


def written_examples() -> list[Example]:
    """Those in the sources, for the names of tests."""
    return [
        Example(path, line)
        for path, command in all_commands().items()
        for line in examples_in(command.epilog or "")
    ]
