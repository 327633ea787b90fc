"""Pure: which offsets are written next, what becomes of a commit, which files are joined."""
