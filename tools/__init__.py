"""Helpers of the build: what `make` runs. No part of the product, and no part imports them."""
