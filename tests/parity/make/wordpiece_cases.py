"""Makes tests/data/wordpiece_cases.json: what BertTokenizerFast gives for hard texts, for the directories of
tiny_bert.py. A case is [text, pair or null, max_length, truncation, [directories' results]]; a result is
[ids, token types, flat offsets] or null where Hugging Face raises. A text that is not UTF-8 is {"hex": bytes}; Hugging Face
gets it decoded with errors="replace".
"""

import json
import pathlib
import random
import unicodedata

from transformers import BertTokenizerFast

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
DIRECTORIES = ["tiny_bert", "tiny_bert_cased", "tiny_bert_added"]

HARD = [
    "", " ", "\t\n\r ", "Hello, World!", "In the beginning God created the heaven and the earth.",
    # accents, composed and decomposed
    "Élan vital, à la carte: naïve façade", unicodedata.normalize("NFD", "Élan vital, à la carte: naïve façade"),
    "ệ ǖ ṩ ȫ", unicodedata.normalize("NFD", "ệ ǖ ṩ ȫ"), "a\u0315\u0300\u0327b", "\u0301a", "\u0344\u0f73\u0f71\u0f72",
    "e\u0301\u0302\u0303\u0308" * 10, "\u0300" * 40, "\u212b\u2126\u1fee", "\u302ea\u0301\u302e\u05b0b",
    # case
    "İstanbul ISTANBUL ıI iİ", "ΟΔΥΣΣΕΥΣ ΣΑΣ σς Σ", "STRASSE straße ẞ", "ﬁne ﬂow ŉ ǰ Ǆ ǅ ᾼ", "ꟋꟌᲉ\U00010d50\U00016ea0",
    # CJK, kana, Hangul
    "中国の漢字とカタカナ、ひらがな。", "漢a字b", "a漢字", "\u3400\u4dbf\u4e00\u9fff\uf900\ufaff",
    "\U00020000\U0002a6df\U0002a700\U0002b73f\U0002b740\U0002b81f\U0002b820\U0002b91f\U0002b920\U0002ceaf\U0002ceb0\U0002f800",
    "가각 한글 \u1112\u1161\u11ab", "日本語 new york Élan élan NEW YORK 'new yorker'", "々〇ヶー", "\u3000全角　空白",
    # emoji
    "👍🏽 👩‍💻 👨‍👩‍👧‍👦 ❤️ 🇩🇪 1️⃣", "a👍b", "\u2764\ufe0e\u2764\ufe0f",
    # control, zero width, white space of every kind
    "a\0b\x01c\x7fd\x80e\x85f", "a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg", "\ufeffbom", "a\ufffdb", "\ufffd", "\0",
    "a\u00a0b\u1680c\u2000d\u2003e\u2009f\u200ag\u2028h\u2029i\u202fj\u205fk\u3000l", "a\x0bb\x0cc\x1cd\x1ee\x1ff",
    "a\u180eb\u061cc", "line one\r\nline two\n\n\tline three", "  leading and trailing  ", "\ue000\U000f0000\U0010fffd",
    "\u0378\U000e0fff\U0010ffff\ufdd0\uffff", "\u202eabc\u202c",
    # unknown scripts, punctuation
    "अकि ไทยำ שָׁלוֹם العَرَبِيَّة ქართული አማርኛ ᚠᚢᚦ 𐍈 𓀀", "\u1885\u1734\ua9bd\u166d\U000111c9", "¿Qué? ¡Sí! «oui» “quoted” ‘x’ … — –",
    "$1,234.56 + 7% = #8 @ 9^2 ~ `x` <y> [z] {w} a_b|c\\d", "don't can't it's", "a.b.c...d", "x²³½ⅷ①", "\u2e43\u2e52\U00010ead",
    # long words and texts
    "a" * 100, "a" * 101, "a" * 200, "é" * 100, "é" * 101, "e\u0301" * 100, "e\u0301" * 101, "が" * 51, "x" * 99 + "\u0301yz",
    "and the Lord said " * 60, "a b " * 500, "unaffableness inconceivability",
    # special and added tokens
    "[CLS] a [SEP] b [PAD] [UNK] [MASK]", "pre[MASK]post", "a [MASK] b", "a  \t[MASK]  b", "[mask] [Sep]", "[[SEP]]", "[SEP", "SEP]",
    "[SEP][SEP]", "a[\0SEP]b", "[S\u0301EP]", "é[SEP]é", "漢[MASK]字", "a <left> b", "a \u3000<left> b", "a <right> b", "a <right>",
    "<right>  <left>", "a <both> b", "a <both>  <both> b", "<both><both>", "a  <both><both>  b", "a<word>b", "a <word> b", "<word>",
    "é<word> <word>é", "-<word>-", "_<word>", "\u0301<word>", "1<word>", "ÉLAN élan Élan e\u0301lan E\u0301LAN", "日本日本語",
    "New York new  york newyork", "\u200d<word>",
]
BYTES = [b"a\xffb", b"\xc3", b"\xc3\x28", b"\xe2\x82", b"\xf0\x9f\x91", b"a\xed\xa0\x80b", b"\xed\xa0\xbd\xed\xb2\xa9", b"\xf4\x90\x80\x80",
         b"\xc0\x80", b"\xf8\x88\x80\x80\x80", b"caf\xe9 latin-1", b"\x80\x80[SEP]\xfe", b"\xe4\xb8\xad\xe4\xb8", b"\xf0\x80\x80\xaf!"]
A, B = "and the Lord said unto him", "Let there be light: and there was light, even in the evening and the morning."
PAIRS = [("", ""), ("a", ""), ("", "a"), (A, B), (B, A), ("[SEP]", "[SEP]"), ("漢字", "İ\u0301"), (A, ""), ("", B), ("\0", "\u200b"), (A, A)]
LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 21, 22, 23, 128]


def drawn():
    """Short strings over all of Unicode, half of them from characters that the vocabularies know."""
    rng = random.Random(11)
    known = [t.removeprefix("##") for t in (DATA / "tiny_bert_added" / "vocab.txt").read_text(encoding="utf-8").split("\n")[5:-1]]
    known += [" ", "\t", "\u0301", "\u0323", "\u302e", "A", "É", "가", "漢", "[SEP]", "[MASK]", "<left>", "\u200d"]
    blocks = [(0x20, 0x250), (0x250, 0x3100), (0x3100, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x110000)]
    for _ in range(1500):
        text = ""
        for _ in range(rng.randint(2, 9)):
            if rng.random() < 0.6:
                text += rng.choice(known)
            else:
                first, last = rng.choices(blocks, weights=[3, 6, 2, 1, 4, 1])[0]
                text += chr(rng.randrange(first, last))
        yield text


def cases():
    for text in HARD + list(drawn()):
        yield text, None, 512, "longest_first"
    for text in BYTES:
        yield text, None, 512, "longest_first"
    for first, second in PAIRS:
        for truncation in ("longest_first", "only_first", "only_second"):
            for max_length in LENGTHS:
                yield first, second, max_length, truncation
    for max_length in (2, 3, 5, 7, 8, 9):
        for truncation in ("longest_first", "only_first", "only_second"):
            yield A, None, max_length, truncation


def encode(tokenizer, text, pair, max_length, truncation):
    try:  # in lists: given alone, transformers drops an empty pair
        e = tokenizer([text], None if pair is None else [pair], truncation=truncation, max_length=max_length, return_offsets_mapping=True)
    except Exception as error:
        assert "Truncation error" in str(error) or "too short" in str(error), error
        return None
    return [e["input_ids"][0], e["token_type_ids"][0], [x for offset in e["offset_mapping"][0] for x in offset]]


def main():
    tokenizers = [BertTokenizerFast.from_pretrained(DATA / d) for d in DIRECTORIES]
    lines = []
    for text, pair, max_length, truncation in cases():
        given = {"hex": text.hex()} if isinstance(text, bytes) else text
        decoded = text.decode(errors="replace") if isinstance(text, bytes) else text
        results = [encode(t, decoded, pair, max_length, truncation) for t in tokenizers]
        lines.append(json.dumps([given, pair, max_length, truncation, results], separators=(",", ":")))
    (DATA / "wordpiece_cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} cases")


if __name__ == "__main__":
    main()
