"""Words to put before a command so that it ends with us, also when we are killed and cannot end it ourselves."""

import shutil

LEASH: tuple[str, ...] = (
    ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") is not None else ()
)
