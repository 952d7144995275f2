"""The engines, one module each: all that Braid says to PostgreSQL, Qdrant, FalkorDB and the embedders.

Vendor exceptions end here: what leaves is `TierUnavailable`, `TierInvalid` or `SetupError`.
"""
