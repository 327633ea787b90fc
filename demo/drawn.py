"""One respool command as it looks on a terminal, also where its output goes into a pipe: tables with headings."""

import sys
from unittest.mock import patch

from respool.cli import output
from respool.cli.start import main

if __name__ == "__main__":
    with patch.object(output, "is_terminal", return_value=True):
        sys.exit(main())
