"""Numbers for Prometheus. Counters are plain integers of the parts themselves, read when somebody asks."""
