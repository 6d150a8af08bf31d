"""Makes small byte-level BPE tokenizers and what Hugging Face gives for hard texts with them:

  tests/data/tiny_bpe          vocab.json and merges.txt, as GPT-2's
  tests/data/tiny_bpe_llama    tokenizer.json with Llama 3's pattern, ignore_merges and added tokens of every kind
  tests/data/bpe_cases.json    a case a line: [text, ids by the first, ids by the second]
"""

import itertools
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from bpe_parity import LLAMA3, ROOT, random_texts, trained  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
GPT2, LLAMA = DATA / "tiny_bpe", DATA / "tiny_bpe_llama"

HARD = [
    "", " ", "  ", "\n", " \n", "\n ", "Hello, world!", "In the beginning God created the heaven and the earth.",
    "I'm you're he's we'll they've I'd can't o'clock 'tis '' '", "I'M YOU'RE HE'S WE'LL THEY'VE I'D CAN'T x'\u017f",
    "def f(x):\n    return x != 1 and x[0] == 'a'\n\n\nfor (;;) { i++; }\r\n\r\n\t\tx -> y;", "a  b   c    d\t\te\n\n\nf \n g\u00a0h\u3000i\x85j",
    "1 12 123 1234 12345 3.14 1,000,000 ٣٤٥ १२३ ² ½ ⅷ", "中文字符，日本語のテキスト。한국어 שלום العربية हिन्दी ไทย Ελλάδα",
    "naïve café e\u0301 Straße ﬁn Ǆ", "👍🏽 👩‍💻 👨‍👩‍👧‍👦 ❤️ 🇩🇪 1️⃣", "\0\x01\x7f\ufeff\u200b\u200d\ufffd\ue000\U0010ffff",
    "a<|endoftext|>b <|endoftext|> c<|endoftext|><|endoftext|>", "<|begin|> x <|end|>y", "Lord Lordly the Lord, Lord",
    "a  naïve  b", "a ->  b->c", "x = y == z", "---===---", "a" * 100, "ab" * 200, " " * 70, "\n" * 70, "\U00010d4a\U00016d70\u1c89",
]


def main():
    for directory in (GPT2, LLAMA):
        directory.mkdir(exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    texts = [(ROOT / "README.md").read_text(), *random_texts(300, 5)]
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"], show_progress=False))
    tokenizer.model.save(str(GPT2))
    trained(LLAMA3, ignore_merges=True, size=500).save(str(LLAMA / "tokenizer.json"))
    (LLAMA / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin|>", "eos_token": "<|endoftext|>"}) + "\n")

    backends = [AutoTokenizer.from_pretrained(GPT2, tokenizer_type="gpt2").backend_tokenizer,
                AutoTokenizer.from_pretrained(LLAMA).backend_tokenizer]
    lines = [json.dumps([text, *(b.encode(text, add_special_tokens=False).ids for b in backends)], separators=(",", ":"))
             for text in itertools.chain(HARD, random_texts(300, 7))]
    (DATA / "bpe_cases.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{len(lines)} cases")


if __name__ == "__main__":
    main()
