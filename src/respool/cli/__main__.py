"""`python -m respool.cli` is `respool`."""

import sys

from respool.cli.main import main

sys.exit(main())
