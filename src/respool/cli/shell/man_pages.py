"""`respool man FOLDER`: man pages, one for each command, written from its help.

They are files in roff's man macros: respool.1, respool-topic.1, respool-topic-create.1. A line of text that begins
with a dot or an apostrophe would be a request to roff, and a backslash an escape, so all text is escaped.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from respool import __version__
from respool.cli import output
from respool.model.quantities import counted

EPILOG = "Example:\n  respool man ~/.local/share/man/man1"


def man(
    context: typer.Context,
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to write them; created if missing.")
    ],
) -> None:
    """Write a man page for each command into a folder."""
    pages = dict(man_pages(context.find_root().command))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text)
    output.note(f"wrote {counted(len(pages), 'man page')} to {folder}")


def man_pages(command: Any, path: tuple[str, ...] = ("respool",)) -> Iterator[tuple[str, str]]:
    """File names and their text, for a command and all below it."""
    subcommands = {
        name: one for name, one in getattr(command, "commands", {}).items() if not one.hidden
    }
    yield f"{'-'.join(path)}.1", _page(command, path, subcommands)
    for name, one in subcommands.items():
        yield from man_pages(one, (*path, name))


def _page(command: Any, path: tuple[str, ...], subcommands: dict[str, Any]) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    chosen = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    title = "-".join(path).upper()
    lines = [
        f'.TH "{_escaped(title)}" "1" "" "respool {__version__}" "Respool"',
        ".SH NAME",
        f"{_escaped('-'.join(path))} \\- {_escaped(_first_sentence(command.help or ''))}",
        ".SH SYNOPSIS",
        f".B {_escaped(' '.join(path))}",
    ]
    if chosen:
        lines.append("[OPTIONS]")
    lines += [_escaped(_argument_name(one)) for one in arguments]
    if subcommands:
        lines.append("COMMAND ...")
    lines += [".SH DESCRIPTION", *_text(command.help or "")]
    if arguments:
        lines.append(".SH ARGUMENTS")
        for one in arguments:
            lines += [".TP", f".I {_escaped(_argument_name(one))}", *_text(one.help or "")]
    if chosen:
        lines.append(".SH OPTIONS")
        for one in chosen:
            names = ", ".join((*one.opts, *one.secondary_opts))
            value = "" if one.is_flag else f" {one.metavar or 'VALUE'}"
            lines += [".TP", f".B {_escaped(names + value)}", *_text(one.help or "")]
    if subcommands:
        lines.append(".SH COMMANDS")
        for name, one in subcommands.items():
            page = "-".join((*path, name))
            lines += [".TP", f".BR {_escaped(page)} (1)", *_text(_first_sentence(one.help or ""))]
    if command.epilog:
        lines += _epilog(command.epilog)
    return "\n".join(lines) + "\n"


def _argument_name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0].removesuffix(".")


def _text(text: str) -> list[str]:
    """Paragraphs as roff fills them."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        if lines:
            lines.append(".PP")
        lines.append(_escaped(" ".join(paragraph.split())))
    return lines


def _epilog(epilog: str) -> list[str]:
    """`Example:` and `Examples:` begin a section of indented lines, kept as they are."""
    lines: list[str] = []
    is_verbatim = False
    for line in epilog.strip().splitlines():
        is_indented = line.startswith("  ")
        if is_indented != is_verbatim:
            lines.append(".nf" if is_indented else ".fi")
            is_verbatim = is_indented
        if line.endswith(":") and not is_indented:
            lines.append(f".SH {_escaped(line.removesuffix(':').upper())}")
        elif line.strip():
            lines.append(_escaped(line))
        elif not is_verbatim:
            lines.append(".PP")
    return [*lines, ".fi"] if is_verbatim else lines


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    # Roff reads bytes: other characters have names.
    text = "".join(one if one.isascii() else f"\\[u{ord(one):04X}]" for one in text)
    return f"\\&{text}" if text.startswith((".", "'")) else text
