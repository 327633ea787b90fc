"""The program's entry point. Until its commands are imported, Ctrl-C ends it at once, as it ends other programs.

Python's default would show a traceback of the import in progress.
"""

import signal

from respool.client.process_exit import ProcessExit


def main() -> int:
    process_exit = ProcessExit()
    handler = signal.getsignal(signal.SIGINT)
    # SIGINT may be ignored on purpose, as a shell does for background jobs.
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from respool.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    process_exit.code = run()
    return process_exit.code
