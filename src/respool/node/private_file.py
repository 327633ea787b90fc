"""Files with secrets: written all or nothing, and readable by this user only from the first moment on."""

import os
from pathlib import Path


def write_private(path: Path, text: bytes | str) -> None:
    draft = path.with_name(f"{path.name}.new")
    data = text.encode() if isinstance(text, str) else text
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        # A draft that a crash left may have another mode.
        os.fchmod(handle, 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
