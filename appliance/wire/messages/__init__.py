"""The declarations, one module for each API: its request, its response and their parts."""
