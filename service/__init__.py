"""Braid: hybrid search over PostgreSQL, Qdrant and FalkorDB, fused into one ranking that explains itself."""

__version__ = "0.1.0"
