"""Kafka's wire protocol: requests and replies as bytes, in both directions.

kio registers strategies for its types with hypothesis wherever that is installed, which takes longer than all other
imports of a command: 0.2 seconds of each process. A process that has not loaded hypothesis does without them.
"""

import sys
from importlib import import_module

if "hypothesis" not in sys.modules:
    # An import of it fails as if it were not installed, only while kio's types are made.
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import_module("kio.static.primitive")
    finally:
        if sys.modules.get("hypothesis") is None:
            sys.modules.pop("hypothesis", None)
