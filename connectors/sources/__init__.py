"""Source connectors, one file each."""
