"""What clients tell of themselves (KIP-714): who is asked for what, and what they sent last."""
