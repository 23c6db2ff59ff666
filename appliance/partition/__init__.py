"""One partition's rules, pure: who leads, what is committed, who waits, what a fetch may see."""
