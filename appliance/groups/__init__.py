"""Consumer groups: who belongs to a group, who owns what, and how far each has read. Pure."""
