"""`respool queue`."""
