"""Topics as data frames: what is read, how it is shared out among tasks, and what becomes of it on the way."""
