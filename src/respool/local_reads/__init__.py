"""Local reads: processes on the broker's host read file ranges of its log."""
