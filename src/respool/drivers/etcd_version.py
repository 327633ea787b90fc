"""Which versions of etcd a cluster may stand on.

Before these, a lease could be revoked wrongly or renewed when it was gone, and a read that promised to be the latest
could be stale after a pause: faults that make two leaders out of one.
"""

import re

# The first good patch of each line that has bad ones; lines before the first are bad, lines after the last are good.
_GOOD_SINCE = {(3, 5): 30, (3, 6): 11}

ADVICE = "run 3.5.30, 3.6.11 or newer"


def is_known_good(version: str) -> bool:
    """A text that is no version is not known to be good."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)(?=$|\+)", version)
    if found is None:
        # 3.7.0-rc.1 and the like: good only where its whole line is.
        found = re.match(r"(\d+)\.(\d+)\.()", version)
        if found is None:
            return False
    line = int(found[1]), int(found[2])
    if line in _GOOD_SINCE:
        return bool(found[3]) and int(found[3]) >= _GOOD_SINCE[line]
    return line > max(_GOOD_SINCE)
