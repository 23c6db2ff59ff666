"""A blocking client for our own use: raw record batches in and out, metadata, offsets, topics and configs."""
