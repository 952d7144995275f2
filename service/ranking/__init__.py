"""Ranking, pure: what to ask the tiers for, and how to weave their answers. No I/O, no clock, no asyncio."""
