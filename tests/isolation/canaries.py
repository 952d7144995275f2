"""Canary words: each says whose it is, where it stands and what it marks, so that a leak names itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

# What a canary marks. The first row belongs to documents; the second, names of things, admins may see too.
ID, TITLE, CONTENT, TAG, ENTITY, METADATA, TYPE, LINK = "itcgemyl"
NAMESPACE, PROJECT, KEY, TENANT = NAMES = "npkw"
KINDS = "itcgemyl" + NAMES

# The place of names that no key of the tenant is ever shown: of its projects, its keys and itself.
UNSHOWN = 9

_WRITTEN = re.compile(r"canary([0-9]{2})([a-z])([0-9])x([0-9]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Canary:
    """A word that stands in one place of one owner, and nowhere else in the world."""

    owner: int
    kind: str
    place: int
    serial: int = 0

    def __str__(self) -> str:
        return f"canary{self.owner:02}{self.kind}{self.place}x{self.serial}"


def canaries(text: str) -> set[Canary]:
    """Those that a text holds."""
    found = _WRITTEN.findall(text)
    return {Canary(int(owner), kind.lower(), int(place), int(serial)) for owner, kind, place, serial in found}
