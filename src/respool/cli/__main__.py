"""`python -m respool.cli` is `respool`."""

import sys

from respool.cli.start import main

sys.exit(main())
