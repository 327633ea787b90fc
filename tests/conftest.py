"""What holds for every test: the same examples in every run, unless they are meant to be new ones.

A change that passes here passes in CI too. New examples are looked for by `make fuzz` (RESPOOL_FUZZ=long); what it
finds becomes a test of its own.
"""

import os
import signal

from hypothesis import settings

settings.register_profile("same", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("new", deadline=None, print_blob=True)
settings.load_profile("new" if os.environ.get("RESPOOL_FUZZ") == "long" else "same")

# Who is started in the background by some shells ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
