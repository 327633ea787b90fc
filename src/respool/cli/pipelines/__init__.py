"""`respool pipeline` and `respool rides`."""
