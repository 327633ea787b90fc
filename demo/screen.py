"""What the demo shows, and in which form."""

import shlex
import subprocess
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

# What was counted, and what it must be.
Counts = dict[str, tuple[int, int]]

console = Console(highlight=False)


def title(text: str) -> None:
    console.print(f"\n[bold cyan]{text}")


def progress() -> Progress:
    return Progress(
        TextColumn("{task.description:<32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )


def respool(address: str, *arguments: str, has_broker: bool = True) -> None:
    """Show the command, run it, and let it speak for itself, with its tables drawn also in a pipe."""
    console.print(f"[bold]$ respool {shlex.join(arguments)}", soft_wrap=True)
    subprocess.run(
        # Unbuffered: its table and what it says about it stay in their order.
        [
            *(sys.executable, "-u", "-m", "demo.drawn", *arguments),
            *(("--broker", address) if has_broker else ()),
        ],
        check=True,
    )


def report(counts: Counts) -> int:
    """Show all counts; 0 if each is what it must be."""
    title("What was counted")
    is_right = True
    for name, (seen, expected) in counts.items():
        is_right = is_right and seen == expected
        mark = "[green]ok[/]" if seen == expected else f"[red]expected {expected:,}[/]"
        console.print(f"  {name:<42} {seen:>9,}  {mark}")
    console.print("[bold green]done[/]" if is_right else "[bold red]the counts are wrong[/]")
    return 0 if is_right else 1
