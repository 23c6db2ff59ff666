"""The runtime: Connect's REST API, a supervisor, and one process or Ray actor for each task."""
