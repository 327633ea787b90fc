"""`respool table`."""
