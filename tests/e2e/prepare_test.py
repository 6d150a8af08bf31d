"""trainer prepare against Hugging Face tokenizers: its files read by the rules of Megatron-LM's index with numpy alone.

    python tests/e2e/prepare_test.py TRAINER_BINARY [TEST...]
"""

import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TRAINER = ""
TYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
WORDS = "a the quick brown fox it's they'll 1234 naïve café 東京 🙂 don't\t x\n\n y=f(x); __init__".split(" ")


def make_tokenizer(directory, texts, vocab_size=400):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    return tokenizer


def read_megatron(prefix):
    """The documents of <prefix>.bin, each a list of ids, and their type."""
    index = Path(f"{prefix}.idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    assert int.from_bytes(index[9:17], "little") == 1
    dtype = np.dtype(TYPES[index[17]])
    sequences, entries = (int.from_bytes(index[at:at + 8], "little") for at in (18, 26))
    lengths = np.frombuffer(index, "<i4", sequences, 34)
    pointers = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    documents = np.frombuffer(index, "<i8", entries, 34 + 12 * sequences)
    assert len(index) == 34 + 12 * sequences + 8 * entries
    data = Path(f"{prefix}.bin").read_bytes()
    assert len(data) == int(lengths.sum()) * dtype.itemsize
    assert documents[0] == 0 and documents[-1] == sequences
    read = [np.frombuffer(data, dtype, n, p).tolist() for n, p in zip(lengths, pointers)]
    return [sum(read[a:b], []) for a, b in zip(documents, documents[1:])], dtype


class Prepare(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(prefix="trainer_prepare_")
        self.path = Path(self.directory.name)
        rng = random.Random(1)
        self.texts = [" ".join(rng.choices(WORDS, k=rng.randrange(1, 60))) for _ in range(200)]
        self.hf = make_tokenizer(self.path / "bpe", self.texts)
        self.eos = self.hf.token_to_id("<|endoftext|>")
        self.documents = [self.hf.encode(t).ids + [self.eos] for t in self.texts]

    def tearDown(self):
        self.directory.cleanup()

    def prepare(self, *arguments, code=0):
        result = subprocess.run([TRAINER, "prepare", *map(str, arguments)], capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        return result

    def jsonl(self, name="docs.jsonl", texts=None, field="text"):
        path = self.path / name
        path.write_text("".join(json.dumps({"id": i, field: t}) + "\n" for i, t in enumerate(texts or self.texts)))
        return path

    def names(self, prefix="out"):
        return sorted(p.name for p in self.path.iterdir() if p.name.startswith(prefix))

    def test_json_lines_are_documents(self):
        out = self.path / "out"
        result = self.prepare(self.jsonl(), "--output", out, "--tokenizer", self.path / "bpe", "--threads", 2)
        documents, dtype = read_megatron(out)
        self.assertEqual(documents, self.documents)
        self.assertEqual(dtype, np.uint16)
        self.assertEqual(self.names(), ["out.bin", "out.idx", "out.json", "out_tokenizer"])
        said = json.loads((self.path / "out.json").read_text())
        self.assertEqual(said["vocab_size"], self.hf.get_vocab_size())
        self.assertEqual(said["tokens"], sum(map(len, self.documents)))
        self.assertEqual(said["documents"], 200)
        self.assertEqual(said["tokenizer"], "out_tokenizer")
        copy = Tokenizer.from_file(str(self.path / "out_tokenizer/tokenizer.json"))
        self.assertEqual(copy.get_vocab(), self.hf.get_vocab())
        self.assertIn(f"{said['tokens']:,} tokens", result.stdout)

    def test_the_number_of_threads_changes_nothing(self):
        for threads in (1, 3):
            self.prepare(self.jsonl(), "--output", self.path / f"out{threads}", "--tokenizer", self.path / "bpe",
                         "--threads", threads)
        self.assertEqual((self.path / "out1.bin").read_bytes(), (self.path / "out3.bin").read_bytes())
        self.assertEqual((self.path / "out1.idx").read_bytes(), (self.path / "out3.idx").read_bytes())

    def test_without_eos(self):
        out = self.path / "out"
        self.prepare(self.jsonl(), "--output", out, "--tokenizer", self.path / "bpe", "--no-eos")
        self.assertEqual(read_megatron(out)[0], [d[:-1] for d in self.documents])

    def test_parquet_columns_are_documents(self):
        strings = {"text": pa.string(), "large": pa.large_string(), "coded": pa.dictionary(pa.int32(), pa.string())}
        for column, kind in strings.items():
            with self.subTest(column):
                table = pa.table({"nested": [{"a": 1, "b": 2}] * 200, column: pa.array(self.texts).cast(kind)})
                for compression in ("snappy", "zstd"):
                    pq.write_table(table, self.path / f"docs_{column}.parquet", row_group_size=70, compression=compression)
                    out = self.path / f"out_{column}_{compression}"
                    self.prepare(self.path / f"docs_{column}.parquet", "--output", out, "--tokenizer", self.path / "bpe",
                                 "--field", column)
                    self.assertEqual(read_megatron(out)[0], self.documents)

    def test_bad_parquet_is_refused(self):
        def error(table, *more):
            pq.write_table(table, self.path / "bad.parquet")
            return self.prepare(self.path / "bad.parquet", "--output", self.path / "out", "--tokenizer", "byte", *more,
                                code=3).stderr
        where = f"{self.path}/bad.parquet"
        table = pa.table({"id": [1, 2], "text": ["a", None]})
        self.assertEqual(error(table), f"{where}: row 2: text: got null; expected a string\n")
        self.assertEqual(error(table, "--field", "id"), f'{where}: column "id": got int64; expected strings\n')
        self.assertEqual(error(table, "--field", "x"), f'{where}: has no column "x"; it has id, text\n')
        (self.path / "bad2.parquet").write_bytes(b"PAR1 no PAR1")
        result = self.prepare(self.path / "bad2.parquet", "--output", self.path / "out", "--tokenizer", "byte", code=3)
        self.assertIn("bad2.parquet: cannot be read as Parquet: ", result.stderr)
        self.assertEqual(self.names(), [])

    def test_text_files_are_documents_and_parted_by_end_of_text(self):
        (self.path / "texts").mkdir()
        for i in range(3):
            (self.path / f"texts/{i}.txt").write_text("\n".join(self.texts[i::3]))
        (self.path / "texts/3.txt").write_text("one<|endoftext|>two")
        out = self.path / "out"
        self.prepare(self.path / "texts", "--output", out, "--tokenizer", self.path / "bpe")
        expected = [self.hf.encode("\n".join(self.texts[i::3])).ids + [self.eos] for i in range(3)]
        expected += [self.hf.encode(t).ids + [self.eos] for t in ("one", "two")]
        self.assertEqual(read_megatron(out)[0], expected)

    def test_characters_and_bytes(self):
        text = "\n".join(self.texts)
        (self.path / "a.txt").write_text(text)
        self.prepare(self.path / "a.txt", "--output", self.path / "chars", "--tokenizer", "char",
                     "--validation-fraction", "0.1")
        ids = {c: i for i, c in enumerate(sorted(set(text)))}
        train, validation = (read_megatron(self.path / f"chars_{part}")[0] for part in ("train", "validation"))
        cut = int(0.9 * len(text))
        self.assertEqual(train, [[ids[c] for c in text[:cut]]])
        self.assertEqual(validation, [[ids[c] for c in text[cut:]]])
        self.prepare(self.path / "a.txt", "--output", self.path / "bytes", "--tokenizer", "byte")
        self.assertEqual(read_megatron(self.path / "bytes")[0], [[*text.encode(), 256]])

    def test_a_large_vocabulary_takes_four_bytes(self):
        tokenizer = json.loads((self.path / "bpe/tokenizer.json").read_text())
        tokenizer["model"]["vocab"].update({f"filler{i}": 400 + i for i in range(70000)})
        (self.path / "big").mkdir()
        (self.path / "big/tokenizer.json").write_text(json.dumps(tokenizer))
        (self.path / "big/tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
        self.prepare(self.jsonl(), "--output", self.path / "out", "--tokenizer", self.path / "big")
        documents, dtype = read_megatron(self.path / "out")
        self.assertEqual(dtype, np.int32)
        self.assertEqual(documents, self.documents)

    def test_validation_and_shards_end_with_documents(self):
        out = self.path / "out"
        self.prepare(self.jsonl(), "--output", out, "--tokenizer", self.path / "bpe", "--validation-fraction", "0.2",
                     "--shard-tokens", 900)
        read = {"train": [], "validation": []}
        for part in read:
            shards = sorted(self.path.glob(f"out_{part}_*.idx"))
            self.assertGreater(len(shards), 1)
            for shard in shards:
                documents = read_megatron(shard.with_suffix(""))[0]
                self.assertLessEqual(sum(map(len, documents)), 900)
                read[part] += documents
        self.assertEqual(read["train"] + read["validation"], self.documents)
        share = sum(map(len, read["validation"])) / sum(map(len, self.documents))
        self.assertAlmostEqual(share, 0.2, delta=0.01)
        self.assertEqual(json.loads((self.path / "out_train.json").read_text())["documents"], len(read["train"]))

    def test_what_is_there_is_kept_unless_forced(self):
        out = self.path / "out"
        arguments = ("--output", out, "--tokenizer", self.path / "bpe")
        self.prepare(self.jsonl(), *arguments, "--shard-tokens", 900)
        before = self.names()
        result = self.prepare(self.jsonl(), *arguments, code=2)
        self.assertIn(": exists; expected a new --output\nhint: --force replaces what an earlier run left\n",
                      result.stderr)
        self.assertEqual(self.names(), before)
        self.prepare(self.jsonl("other.jsonl", self.texts[:9]), *arguments, "--force")
        self.assertEqual(self.names(), ["out.bin", "out.idx", "out.json", "out_tokenizer"])
        self.assertEqual(read_megatron(out)[0], self.documents[:9])

    def test_an_output_is_one_prepares_at_a_time(self):
        out, lock = self.path / "out", self.path / "out.lock"
        arguments = (self.jsonl(), "--output", out, "--tokenizer", self.path / "bpe")
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assertEqual(self.prepare(*arguments, "--force", code=2).stderr,
                             f"--output: {out} is in use by another prepare; expected another one, or to wait for it\n")
        self.assertEqual(self.names(), ["out.lock"])
        self.prepare(*arguments)  # of one that was killed
        self.assertEqual(self.names(), ["out.bin", "out.idx", "out.json", "out_tokenizer"])

    def test_a_signal_stops_it_and_leaves_nothing(self):
        (self.path / "a.txt").write_text("\n".join(self.texts) * 4000)
        process = subprocess.Popen([TRAINER, "prepare", self.path / "a.txt", "--output", self.path / "out", "--tokenizer",
                                    self.path / "bpe", "--threads", "1"], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not (self.path / "out.bin.partial").exists():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.communicate(timeout=60)[1],
                         f"stopped by signal 15: nothing of {self.path}/out is written, what was there is as it was\n")
        self.assertEqual(process.returncode, 128 + signal.SIGTERM)
        self.assertEqual(self.names(), [])

    def test_a_result_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([TRAINER, "prepare", self.jsonl(), "--output", self.path / "out", "--tokenizer", "byte"],
                                    stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(result.stderr, "cannot write to standard output: No space left on device\n")
            self.assertEqual(subprocess.run([TRAINER, "--help"], stdout=full, stderr=subprocess.PIPE).returncode, 1)

    def test_a_document_longer_than_a_shard_is_told(self):
        (self.path / "a.txt").write_text("abc" * 100)
        result = self.prepare(self.path / "a.txt", "--output", self.path / "out", "--tokenizer", "byte", "--shard-tokens", 90)
        self.assertEqual(result.stderr, "warning: --shard-tokens: 1 file with more than 90 tokens, as no document is cut: "
                                        "the longest has 301\n")

    def test_a_failure_leaves_nothing_and_names_the_line(self):
        path = self.jsonl()
        path.write_text(path.read_text() + '{"text": 3}\n')
        result = self.prepare(path, "--output", self.path / "out", "--tokenizer", self.path / "bpe", code=3)
        self.assertEqual(result.stderr, f"{path}:201: text: got number; expected a string\n")
        self.assertEqual(self.names(), [])
        self.prepare(self.jsonl(), "--output", self.path / "out", "--tokenizer", self.path / "bpe")
        result = self.prepare(self.path / "out.bin", "--output", self.path / "two", "--tokenizer", "byte", code=3)
        self.assertEqual(result.stderr, f"{self.path}/out.bin: has tokens already (megatron)\n")
        (self.path / "empty.txt").write_text("")
        for tokenizer in ("byte", "char"):
            result = self.prepare(self.path / "empty.txt", "--output", self.path / "two", "--tokenizer", tokenizer, code=3)
            self.assertEqual(result.stderr, f"{self.path}/empty.txt: has no text\n")
        self.prepare(self.path / "none.txt", "--output", self.path / "two", "--tokenizer", "byte", code=2)
        self.prepare(self.jsonl(), "--output", self.path / "two", "--tokenizer", self.path / "none", code=2)

    def test_inputs_and_outputs_that_do_not_go_together_are_refused(self):
        lines = self.jsonl()
        (self.path / "a.txt").write_text("a")
        (self.path / "sub.txt").mkdir()
        def error(*arguments, output=self.path / "out", code=3):
            return self.prepare(*arguments, "--output", output, "--tokenizer", "byte", "--force", code=code).stderr
        self.assertEqual(error(self.path / "a.txt", lines),
                         f"{self.path}/a.txt: is text, and {lines} is jsonl; expected files of one kind\n")
        self.assertEqual(error(self.path / "*.txt"), f"{self.path}/sub.txt: is a directory; expected files\n")
        self.assertEqual(error(lines, output=f"{self.path}/", code=2),
                         f'--output: got "{self.path}/"; expected what the files\' names begin with, such as '
                         f"{self.path}/text\n")
        self.assertEqual(error(lines, output=self.path / "a.txt/out"),
                         f"{self.path}/a.txt: cannot make: Not a directory\n")
        as_json = lines.rename(self.path / "docs.json")
        self.assertEqual(error(as_json, "--format", "jsonl", output=self.path / "docs", code=2),
                         f"{as_json}: is an input; expected another --output\n")
        self.assertTrue(as_json.exists())
        self.assertIn("--validation-fraction", error(as_json, "--validation-fraction", "1", code=2))

    def test_pyarrow_of_another_place_or_none(self):
        pq.write_table(pa.table({"text": self.texts}), self.path / "docs.parquet")
        environment = os.environ | {"TRAINER_PYARROW": str(self.path)}
        result = subprocess.run([TRAINER, "prepare", self.path / "docs.parquet", "--output", self.path / "out",
                                 "--tokenizer", "byte"], capture_output=True, text=True, env=environment)
        self.assertEqual(result.returncode, 3)
        self.assertIn("no Parquet: ", result.stderr)
        self.assertIn(f"\n  {self.path}\nhint: pip install 'pyarrow==", result.stderr)


if __name__ == "__main__":
    TRAINER = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
