"""What a replica still has after its broker comes back.

| respool.flush | stopped cleanly | crash of the process | power cut |
|---|---|---|---|
| always | everything | all it ever said it has | all it ever said it has |
| interval, os | everything | everything, but it cannot be told from a power cut | what happened to be written |

Under `always` a replica says only what is synced, and the leader counts only what is synced with itself: nothing
acknowledged is lost by any crash, even of all replicas at once. Under `interval` and `os` a record is safe as long as
one member of the ISR stays up; who was not stopped cleanly may have lost what it said it has, and others rely on it.
"""

from respool.model.topic_config import Flush


def may_stay_in_sync(flush: Flush, *, was_stopped_cleanly: bool) -> bool:
    """Whether a broker that starts may still be in its partition's ISR and ELR.

    If not, it has to be taken out of both before it registers: else it could be elected without what it lost. In either
    case it gives up leadership before it registers: see `may_lead`.
    """
    return was_stopped_cleanly or flush is Flush.ALWAYS
