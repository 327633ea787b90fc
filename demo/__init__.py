"""The ride company on one page: `python -m demo`."""
