"""Topics as data frames: which offsets are read, how they are split into tasks, and how rows are converted."""
