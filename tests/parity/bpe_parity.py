"""Compares this program's byte-level BPE with Hugging Face tokenizers: ids of random texts of many kinds, words of every
Unicode code point, bytes that are not UTF-8, texts without a space, and what transformers loads from a saved directory.

  bpe_parity.py TOKENIZER_DUMP [--texts N]
"""

import argparse
import codecs
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPT2_DIRECTORY = ROOT / "assets/gpt2-tokenizer"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT2_SHORT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")

failures = 0


def check(condition, *message):
    global failures
    if not condition:
        failures += 1
        if failures <= 20:
            print(*message)


class Ours:
    def __init__(self, dump):
        self.dump = dump

    def __call__(self, command, argument, texts, *more):
        lines = "".join((t if isinstance(t, bytes) else t.encode()).hex() + "\n" for t in texts)
        done = subprocess.run([self.dump, command, argument, *more], input=lines, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{command} {argument}: exit code {done.returncode}: {done.stderr}")
        return [json.loads(line) for line in done.stdout.splitlines()]


# Texts.

def pieces(rng):
    """Endless pieces of text, of all the kinds that pre-tokenizers tell apart."""
    words = ("the The THE and Lord said naïve Straße Ελλάδα привет 中文字符 日本語のテキスト 한국어 שלום مرحبا नमस्ते ไทย "
             "don't I'm we'll they'VE he'd it'S o'clock 'tis 're x'ſ 'Llama return def for while int main() {} [] "
             "!= == -> => :: // /* */ <br> <|endoftext|> <|begin|> <|end|> é é ﬁ Ǆ ǅ ß İ ⅷ ² ½ ٣٤٥ १२३ 一二三 "
             "1 12 123 1234 1234567 3.14 1,000,000 0x1F 1e-9 👍🏽 👩‍💻 👨‍👩‍👧‍👦 ❤️ 🇩🇪 1️⃣ … — « » “ ” ’ ' '' \" .. ... !!! ?! # @user "
             "http://a.b/c?d=e&f=g _snake_case_ CamelCase ---- ==== \\n \\t \0 \x7f \x85 \ufeff \u200b \u200d \ufffd").split(" ")
    spaces = [" ", " ", " ", "  ", "   ", "    ", " " * 17, "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", " \n", "\n ", " \n \n  ", "\u00a0",
              "\u2003", "\u3000", "\u2028", "\x0b", "\x0c", "\x85", "\x1c", "\u180e"]
    blocks = [(0, 0x80), (0x80, 0x250), (0x250, 0x3100), (0x3100, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000),
              (0x20000, 0x110000)]
    while True:
        kind = rng.random()
        if kind < 0.45:
            yield rng.choice(words)
        elif kind < 0.75:
            yield rng.choice(spaces)
        elif kind < 0.9:
            yield chr(rng.randrange(*rng.choices(blocks, weights=[4, 4, 6, 3, 1, 5, 1])[0]))
        elif kind < 0.95:
            yield "'" + rng.choice(["s", "t", "re", "ve", "m", "ll", "d", "S", "LL", "Ve", "l", "r", "ſ", "\u212a"])
        else:
            yield "".join(rng.choices("aeiou0123456789 .,'\n", k=rng.randint(1, 12)))


def random_texts(count, seed):
    rng = random.Random(seed)
    source = pieces(rng)
    for _ in range(count):
        yield "".join(itertools.islice(source, rng.randint(0, 30)))


def random_bytes(count, seed):
    rng = random.Random(seed)
    source = pieces(rng)
    for _ in range(count):
        text = bytearray("".join(itertools.islice(source, rng.randint(0, 12))).encode())
        for _ in range(rng.randint(1, 6)):
            where = rng.randint(0, len(text))
            text[where:where + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 3))
        yield bytes(text)
        yield rng.randbytes(rng.randint(0, 40))


# Hugging Face's tokenizers.

def gpt2(add_prefix_space=False):
    tokenizer = Tokenizer(models.BPE.from_file(str(GPT2_DIRECTORY / "vocab.json"), str(GPT2_DIRECTORY / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False, special=True)])
    return tokenizer


def trained(pattern, ignore_merges, size=1500):
    """A small vocabulary; with ignore_merges some of its words cannot be reached by merges."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    texts = [(ROOT / name).read_text() for name in ("README.md", "lib/README.md", "CHANGELOG.md")] + list(random_texts(300, 5))
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    if ignore_merges:
        description = json.loads(tokenizer.to_str())
        vocab = description["model"]["vocab"]
        for word in ("Ġtransformer", "ĠCamelCase", "é", "1234567", "123", "åĽ½"):
            vocab.setdefault(word, len(vocab))
        tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|begin|>"])
    tokenizer.add_tokens([AddedToken("<|end|>", normalized=False), AddedToken("Lord", single_word=True, normalized=True),
                          AddedToken("naïve", lstrip=True), AddedToken("->", rstrip=True, normalized=False), AddedToken("=")])
    return tokenizer


# Comparisons.

def compare_ids(name, ours, directory, tokenizer, texts, exact_inverse=True):
    expected = [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    for text, (inverse, got), want in zip(texts, ours("ids", directory, texts), expected, strict=True):
        check(got == want, f"{name}: {ascii(text)}\n  got      {got}\n  expected {want}")
        check(inverse or not exact_inverse, f"{name}: {ascii(text)}: decoding gives another text")
    print(f"{name}: ids of {len(texts)} texts")


def code_point_texts(step=1):
    """Every code point among letters, digits, spaces, apostrophes and itself, but those of planes without scripts only
    between two letters; some thousand in a text."""
    points = [c for c in range(0, 0x110000, step) if not 0xD800 <= c < 0xE000]
    for i in range(0, len(points), 2000):
        yield "".join(f"a{c}1{c} {c}{c}'{c}e\n{c}" if ord(c) < 0x20000 or ord(c) >> 16 == 14 else f"a{c}"
                      for c in map(chr, points[i:i + 2000]))


def compare_words(name, ours, pattern, texts):
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    for text, got in zip(texts, ours("words", pattern, texts), strict=True):
        words = [word for word, _ in split.pre_tokenize_str(text)]
        want = list(itertools.accumulate(len(word.encode()) for word in words))
        if got != want:
            at = next(i for i, (a, b) in enumerate(itertools.zip_longest(got, want)) if a != b)
            check(False, f"{name}: words end at {got[at:at + 3]}, expected {want[at:at + 3]}: {[ascii(w) for w in words[at - 1:at + 3]]}")
    print(f"{name}: words of {len(texts)} texts, {sum(map(len, texts))} characters")


def compare_bytes(name, ours, directory, tokenizer, pattern, texts):
    """The stated policy: words as of the text with U+FFFD for each ill-formed sequence, ids of the bytes themselves."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    alphabet = byte_alphabet()

    def ids(text):
        ill_formed = []
        codecs.register_error("record", lambda e: (ill_formed.append(text[e.start:e.end]) or "\ufffd", e.end))
        # A real U+FFFD stands for itself.
        decoded = text.replace(b"\xef\xbf\xbd", "\ue000".encode()).decode(errors="record")
        bad = iter(ill_formed)
        for word, _ in split.pre_tokenize_str(decoded):
            raw = b"".join(next(bad) if c == "\ufffd" else "\ufffd".encode() if c == "\ue000" else c.encode() for c in word)
            yield from (token.id for token in tokenizer.model.tokenize("".join(alphabet[b] for b in raw)))

    texts = [t for t in texts if b"<|" not in t]
    for text, (inverse, got) in zip(texts, ours("ids", directory, texts), strict=True):
        want = list(ids(text))
        check(got == want, f"{name}: {text}\n  got      {got}\n  expected {want}")
        check(inverse, f"{name}: {text}: decoding gives other bytes")
    print(f"{name}: {len(texts)} texts that are not UTF-8")


def byte_alphabet():
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (b for b in range(256) if b not in visible)
    return {b: chr(b) for b in visible} | {b: chr(256 + i) for i, b in enumerate(others)}


def compare_long(name, ours, directory, tokenizer):
    rng = random.Random(3)
    letters = "".join(rng.choices("etaoinshrdlu", k=1 << 20))
    for kind, text in (("one letter", "a" * (1 << 20)), ("random letters", letters), ("Chinese", "的一是不了人" * ((1 << 20) // 18)),
                       ("spaces", " " * (1 << 20)), ("symbols", "-=" * (1 << 19))):
        compare_ids(f"{name}, 64 KiB of {kind}", ours, directory, tokenizer, [text[:1 << 16]])
        seconds = ours("time", directory, [text[:len(text) // 16], text] * 3)
        part, whole = min(seconds[::2]), min(seconds[1::2])
        print(f"  {len(text.encode()) >> 10} KiB in {whole:.3f} s, {whole / part:.1f} times a 16th of it")
        # n log n gives 20, n squared 256.
        check(whole < 80 * part, f"{name}: {kind}: 16 times the text takes {whole / part:.1f} times as long")


def compare_saved(name, ours, path, texts):
    """What transformers loads from a saved model's directory gives these ids, too."""
    from transformers import AutoTokenizer
    with tempfile.TemporaryDirectory() as directory:
        ours("save", path, [], directory)
        files = sorted(f.name for f in pathlib.Path(directory).iterdir())
        theirs = AutoTokenizer.from_pretrained(directory)
        check(theirs.eos_token == "<|endoftext|>", f"{name}: saved eos_token {theirs.eos_token}")
        compare_ids(f"{name}, saved as {' '.join(files)}", ours, directory, theirs.backend_tokenizer, texts, exact_inverse=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump")
    parser.add_argument("--texts", type=int, default=10000)
    args = parser.parse_args()
    ours = Ours(args.dump)
    texts = ["", " ", "\n", "Hello, world!", *random_texts(args.texts, 1)]

    compare_ids("GPT-2", ours, str(GPT2_DIRECTORY), gpt2(), texts)
    compare_bytes("GPT-2", ours, str(GPT2_DIRECTORY), gpt2(), GPT2, [*random_bytes(1500, 2)])
    compare_saved("GPT-2", ours, str(GPT2_DIRECTORY), texts[:1000])
    compare_long("GPT-2", ours, str(GPT2_DIRECTORY), gpt2())

    with tempfile.TemporaryDirectory() as directory:
        path = str(pathlib.Path(directory, "tokenizer.json"))
        for name, pattern, ignore_merges in (("Llama 3", LLAMA3, True), ("cl100k", CL100K, False), ("Qwen 2", QWEN2, False)):
            tokenizer = trained(pattern, ignore_merges)
            tokenizer.save(path)
            compare_ids(name, ours, path, tokenizer, texts, exact_inverse=False)
            compare_saved(name, ours, path, texts[:1000])
            tokenizer.encode_special_tokens = True
            lines = ours("ids", path, texts[:2000], "ignore-special")
            for text, (_, got), want in zip(texts, lines, tokenizer.encode_batch_fast(texts[:2000], add_special_tokens=False)):
                check(got == want.ids, f"{name}, special tokens as text: {ascii(text)}\n  got      {got}\n  expected {want.ids}")
        with_space = gpt2(add_prefix_space=True)
        with_space.save(path)
        compare_ids("GPT-2 with add_prefix_space", ours, path, with_space, texts[:2000], exact_inverse=False)

    compare_words("Llama 3", ours, LLAMA3, list(code_point_texts()))  # whose classes of characters are the others', too
    for name, pattern in (("GPT-2", GPT2), ("GPT-2, short", GPT2_SHORT), ("cl100k", CL100K), ("Qwen 2", QWEN2)):
        compare_words(name, ours, pattern, list(code_point_texts(17)))
        compare_words(name, ours, pattern, texts[:2000])
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
