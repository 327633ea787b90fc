"""Who may open the data folder: a new one is for the broker's user only, an existing one is left as it is."""

import logging
import os
import stat

from respool.drivers.local_files import DATA_FOLDER_MODE
from respool.model.settings import Settings

logger = logging.getLogger(__name__)


def make_data_folder(settings: Settings) -> None:
    """Make the data folder if there is none, and warn if others can open the one of a secured broker.

    Raises:
        OSError: it cannot be made.
    """
    os.makedirs(settings.data, mode=DATA_FOLDER_MODE, exist_ok=True)
    mode = os.stat(settings.data).st_mode
    # A group may have been let in on purpose: readers on this machine that open files share it.
    if mode & (stat.S_IROTH | stat.S_IXOTH) and any(
        one.is_authenticated or one.protocol.has_tls for one in settings.listeners
    ):
        logger.warning(
            "every user of this machine can open the data folder %s, which has the messages and what logins are "
            "checked with: chmod 700 it (or 750, if readers in its group read files)",
            settings.data,
        )
