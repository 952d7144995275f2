"""The words of a name: how titles, entities and queries are cut so that one can be found in the other.

The same cut is used when a document is indexed and when a query is asked. A word is a run of letters and
digits, so nothing a caller writes can reach a query language as anything but a word.
"""

from __future__ import annotations

import re
import unicodedata

MAX_WORDS = 64
MAX_LENGTH = 64

_COMMON = """
    a an and are as at be but by for from had has have in into is it its of on or that the their this to was were will
    with
"""
STOP_WORDS = frozenset(_COMMON.split())

_RUN = re.compile(r"[^\W_]+")
# Nobody's name is longer: bounds the work on a hostile text.
_MAX_TEXT = 65_536


def words(text: str) -> tuple[str, ...]:
    """The words of a name in order, without accents, case and stop words; stop words only if there is nothing else."""
    runs = [run[:MAX_LENGTH] for run in _RUN.findall(_plain(text[:_MAX_TEXT]))]
    telling = [run for run in runs if run not in STOP_WORDS]
    return tuple((telling or runs)[:MAX_WORDS])


def _plain(text: str) -> str:
    """Without accents and case. Decomposed twice, as folding the case may bring new accents."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(char for char in unicodedata.normalize("NFKD", folded) if unicodedata.category(char)[0] != "M")
