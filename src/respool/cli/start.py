"""Where the program begins. Until its commands are imported, Ctrl-C ends it at once, as it ends other programs.

Python's own way would show a traceback of whatever was being imported.
"""

import signal

from respool.cli.process_exit import ProcessExit


def main() -> int:
    process_exit = ProcessExit()
    handler = signal.getsignal(signal.SIGINT)
    # Somebody may have wished it ignored, as a shell does for what it runs in the background.
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from respool.cli.main import main as run

    signal.signal(signal.SIGINT, handler)
    process_exit.code = run()
    return process_exit.code
