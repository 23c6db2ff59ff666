"""The cluster's metadata: its log in the object store, the image that follows from it, and who decides what comes next.

Pure: events and time in, effects out. The I/O around it is in `appliance.broker_actors`.
"""
