"""Writes tests/data/tokens: small files of tokens as nanoGPT, llm.c and Megatron-LM write them, by the formats' own rules
and numpy alone. Run it again only when a format is added; the files are committed.

    python tests/parity/make/token_files.py
"""

import struct
from pathlib import Path

import numpy as np

OUT = Path(__file__).resolve().parents[2] / "data/tokens"
# Three documents, of two, one and two sequences; one document in the middle has none.
SEQUENCES = [[1, 2, 3], [4, 50256], [5, 6, 7, 50256], [8], [9, 10, 50256]]
DOCUMENTS = [0, 2, 3, 3, 5]
CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def megatron(name, dtype, sequences):
    data = [np.array(s, dtype=dtype).tobytes() for s in sequences]
    (OUT / f"{name}.bin").write_bytes(b"".join(data))
    pointers = np.cumsum([0] + [len(d) for d in data])[:-1]
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, CODES[dtype], len(sequences), len(DOCUMENTS))
    index += np.array([len(s) for s in sequences], dtype="<i4").tobytes()
    index += pointers.astype("<i8").tobytes() + np.array(DOCUMENTS, dtype="<i8").tobytes()
    (OUT / f"{name}.idx").write_bytes(index)


def llmc(name, dtype, magic, version, tokens):
    header = np.zeros(256, dtype="<i4")
    header[:3] = magic, version, len(tokens)
    (OUT / f"{name}.bin").write_bytes(header.tobytes() + np.array(tokens, dtype=dtype).tobytes())


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    for dtype in ("uint16", "int32", "int64"):
        megatron(f"megatron_{dtype}", dtype, SEQUENCES)
    for dtype in ("uint8", "int8", "int16"):  # ids that fit
        megatron(f"megatron_{dtype}", dtype, [[min(i, 100) for i in s] for s in SEQUENCES])
    np.array([i for s in SEQUENCES for i in s], dtype="<u2").tofile(OUT / "nanogpt.bin")
    llmc("llmc_gpt2", "<u2", 20240520, 1, [50256, 1, 2, 50256, 3, 4, 5])
    llmc("llmc_llama3", "<u4", 20240801, 7, [128000, 1, 2, 128000, 3, 100000, 5])
