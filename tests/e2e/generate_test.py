"""trainer generate against transformers' generate(): small random models, a byte-level BPE, greedy choice token by token; what
sampling must keep; and what a user sees of errors.

    python tests/e2e/generate_test.py TRAINER_BINARY [TEST...]
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
import tiny_gpt  # noqa: E402
import torch  # noqa: E402
from tokenizers import Tokenizer, processors  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast  # noqa: E402
from transformers.utils import logging  # noqa: E402

TRAINER = ""
POSITIONS, VOCAB, TOKENS = 256, 320, 200
PROMPTS = ["The heart knoweth", "Envy", "She hath girded with might her loins, And doth strengthen her arms."]


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory(prefix="trainer_generate_")
        cls.path = Path(cls.directory.name)
        cls.models = {}
        for form in ("gpt2", "llama"):
            tiny_gpt.make_directory(cls.path / form, form, VOCAB, POSITIONS, spread=0.3)
            cls.models[form] = AutoModelForCausalLM.from_pretrained(cls.path / form).eval()
        cls.tokenizer = Tokenizer.from_file(str(cls.path / "gpt2/tokenizer.json"))

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def generate(self, model, *arguments, code=0, env=()):
        command = [TRAINER, "generate", str(model), "--threads", "1", "--device", "cpu", *map(str, arguments)]
        result = subprocess.run(command, cwd=self.path, capture_output=True, text=True, timeout=120,
                                env=os.environ | dict(env))
        self.assertEqual(result.returncode, code, (result.stdout, result.stderr))
        return result

    def lines(self, model, *arguments, prompts=PROMPTS[:1], **more):
        flags = [flag for prompt in prompts for flag in ("--prompt", prompt)]
        return [json.loads(line) for line in self.generate(model, *flags, "--json", *arguments, **more).stdout.splitlines()]

    def texts(self, *arguments, **more):
        return [line["text"] for line in self.lines(*arguments, **more)]

    @classmethod
    @functools.lru_cache
    def expected(cls, form, prompt, **options):
        """The ids that transformers chooses; its choice must be none between equals."""
        ids = cls.tokenizer.encode(prompt).ids
        cls.models[form].generation_config.eos_token_id = None
        ids = torch.tensor([ids])
        out = cls.models[form].generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False,
                                         pad_token_id=0, output_scores=True, return_dict_in_generate=True, **options)
        for scores in out.scores:
            first, second = scores[0].topk(2).values.tolist()
            assert first - second > 1e-4, "choose another seed for the model"
        return out.sequences[0, ids.shape[1]:].tolist()

    def text(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def test_greedy_is_as_in_transformers(self):
        for form in self.models:
            ids = self.expected(form, PROMPTS[0])
            self.assertGreater(len(set(ids)), 20)
            line = self.lines(form, "--temperature", 0, "-n", TOKENS, "--ignore-eos")[0]
            self.assertEqual(line["text"], self.text(ids), form)
            self.assertEqual([line["new_tokens"], line["finish"]], [TOKENS, "length"])

    def test_a_llamas_prompt_begins_once_with_its_token_of_beginning(self):
        model = self.path / "template"
        shutil.copytree(self.path / "llama", model)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"eos_token_id": None}))
        tokenizer = tiny_gpt.make_tokenizer(VOCAB - 1)
        tokenizer.add_special_tokens(["<|begin|>"])
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", VOCAB - 1)])])
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin|>").save_pretrained(model)
        ids = AutoTokenizer.from_pretrained(model)(PROMPTS[0], return_tensors="pt")
        self.assertEqual((ids.input_ids == VOCAB - 1).sum(), 1)
        reference = AutoModelForCausalLM.from_pretrained(model).eval()
        out = reference.generate(**ids, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)[0]
        count = ids.input_ids.shape[1]
        for prompt in (PROMPTS[0], "<|begin|>" + PROMPTS[0]):
            line = self.lines(model, "--temperature", 0, "-n", TOKENS, "--ignore-eos", prompts=[prompt])[0]
            self.assertEqual([line["text"], line["prompt_tokens"]],
                             [tokenizer.decode(out[count:].tolist(), skip_special_tokens=False), count])
        self.assertEqual(self.lines(model, "-n", 1, "--no-bos")[0]["prompt_tokens"], count - 1)

    def test_repetition_penalty_is_as_in_transformers(self):
        for form in self.models:
            ids = self.expected(form, PROMPTS[2], repetition_penalty=1.3)
            self.assertNotEqual(ids, self.expected(form, PROMPTS[2]))
            texts = self.texts(form, "--temperature", 0, "-n", TOKENS, "--ignore-eos", "--repetition-penalty", 1.3,
                               prompts=PROMPTS[2:])
            self.assertEqual(texts, [self.text(ids)], form)

    def test_prompts_together_are_as_each_alone_in_transformers(self):
        for form in self.models:
            flags = (form, "--temperature", 0, "-n", 60, "--ignore-eos")
            # glibc fills new memory with 0x7f: what the shorter have not written is read as NaN.
            together = self.lines(*flags, prompts=PROMPTS, env={"MALLOC_PERTURB_": "128"})
            self.assertEqual([line["prompt"] for line in together], PROMPTS)
            self.assertEqual([line["text"] for line in together],
                             [self.text(self.expected(form, prompt)[:60]) for prompt in PROMPTS])

    def test_a_text_ends_at_the_end_of_text_token(self):
        ids = self.expected("gpt2", PROMPTS[0])
        end = ids[30]
        model = self.path / "eos"
        shutil.copytree(self.path / "gpt2", model)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"eos_token_id": [end, VOCAB - 1]}))
        line = self.lines(model, "--temperature", 0)[0]
        first = ids.index(end)
        self.assertEqual(line["text"], self.text(ids[:first]))
        self.assertEqual([line["new_tokens"], line["finish"]], [first + 1, "end_of_text"])

    def test_the_same_seed_gives_the_same_text_and_another_another(self):
        def sample(*flags):
            return self.texts("gpt2", "-n", 50, "--ignore-eos", *flags)
        first = sample("--num-samples", 3, "--seed", 5)
        self.assertEqual(len(set(first)), 3)
        self.assertEqual(sample("--num-samples", 3, "--seed", 5), first)
        self.assertEqual(sample("--seed", 5), first[:1])
        self.assertNotEqual(sample("--seed", 6), first[:1])
        greedy = sample("--temperature", 0)
        self.assertNotEqual(first[:1], greedy)
        self.assertEqual(sample("--top-k", 1, "--temperature", 5), greedy)
        self.assertEqual(sample("--top-p", 1e-9), greedy)

    def test_one_prompt_streams_its_text_and_several_are_parted(self):
        flags = ("gpt2", "--temperature", 0, "-n", 50, "--ignore-eos")
        texts = self.texts(*flags, prompts=PROMPTS)
        result = self.generate(*flags, "--prompt", PROMPTS[0])
        self.assertEqual(result.stdout, PROMPTS[0] + texts[0] + "\n")
        self.assertRegex(result.stderr, r"^50 tokens in \d+\.\d\d s, \d+ tokens/s\n$")
        result = self.generate(*flags, "--prompt", PROMPTS[0], "--prompt", PROMPTS[1])
        self.assertEqual(result.stdout, "".join(
            f"--- {i + 1} of 2\n{PROMPTS[i]}{texts[i]}\n" for i in range(2)))
        (self.path / "prompt.txt").write_text(PROMPTS[0])
        self.assertEqual(self.generate(*flags, "--prompt-file", "prompt.txt").stdout, PROMPTS[0] + texts[0] + "\n")

    def test_backslashes_in_prompts_are_escapes_unless_raw(self):
        self.assertEqual(self.lines("gpt2", "-n", 1, prompts=[r"a\nb\tc\\n"])[0]["prompt"], "a\nb\tc\\n")
        self.assertEqual(self.lines("gpt2", "-n", 1, "--raw", prompts=[r"a\nb"])[0]["prompt"], r"a\nb")

    def test_a_stop_string_ends_a_text_and_is_no_part_of_it(self):
        flags = ("gpt2", "--temperature", 0, "-n", 100, "--ignore-eos")
        text = self.texts(*flags)[0]
        # Plain characters, over the borders of tokens, that are there first well within the text.
        stop = next(text[i:i + 4] for i in range(20, len(text)) if text[i:i + 4].isascii() and
                    text[i:i + 4].isprintable() and text.index(text[i:i + 4]) == i and "\\" not in text[i:i + 4])
        line = self.lines(*flags, "--stop", "not there at all", "--stop", stop)[0]
        self.assertEqual(line["text"], text[:text.index(stop)])
        self.assertEqual(line["finish"], "stop_string")
        self.assertLess(line["new_tokens"], 100)
        self.assertEqual(self.generate(*flags, "--prompt", PROMPTS[0], "--stop", stop).stdout,
                         PROMPTS[0] + line["text"] + "\n")

    def test_past_the_last_position_a_text_goes_on_from_its_last_half(self):
        for form in self.models:
            capacity = 24
            model = self.path / f"{form}_short"
            tiny_gpt.make_directory(model, form, VOCAB, capacity, spread=0.3)
            reference = AutoModelForCausalLM.from_pretrained(model).eval()
            expected = []
            for prompt in PROMPTS:  # the last is longer than the context
                ids = self.tokenizer.encode(prompt).ids
                begin, size = 0, len(ids)
                with torch.no_grad():
                    for _ in range(60):
                        if len(ids) - begin > capacity:
                            begin = len(ids) - capacity // 2
                        ids.append(int(reference(torch.tensor([ids[begin:]])).logits[0, -1].argmax()))
                expected.append(self.text(ids[size:]))
            flags = (model, "--temperature", 0, "-n", 60, "--ignore-eos")
            self.assertEqual(self.texts(*flags, prompts=PROMPTS[2:]), expected[2:], form)
            self.assertEqual(self.texts(*flags, prompts=PROMPTS), expected, form)  # each in its own time
            told = self.generate(model, "-n", 1, "--prompt", PROMPTS[0], "--prompt", PROMPTS[2]).stderr
            self.assertIn("of which the model's 24 positions see the last 12", told)
            self.assertNotIn("prompt 1:", told)

    def make_char_model(self):
        model = self.path / "char"
        if not model.exists():
            characters = "".join(sorted(set("\n".join(tiny_gpt.texts()) + "é東")))
            tiny_gpt.make_directory(model, "gpt2", len(characters), 16, spread=0.3, with_tokenizer=False)
            (model / "trainer_tokenizer.json").write_text(json.dumps({"type": "char", "characters": characters}))
        return model

    def test_characters(self):
        line = self.lines(self.make_char_model(), "-n", 100, prompts=["The é"])[0]
        self.assertEqual([line["prompt_tokens"], line["new_tokens"], len(line["text"])], [5, 100, 100])
        result = self.generate("char", "--prompt", "The\n💡", code=3)
        self.assertRegex(result.stderr, r'^line 2, column 1 \(byte 4\): character "💡" \(U\+1F4A1\) is not among the \d+ of '
                                        r"the character tokenizer, which are those of its training text\n$")
        result = self.generate("char", "--prompt", "", code=3)
        self.assertEqual(result.stderr, "the prompt is empty, and the tokenizer has no token to begin with; expected "
                                        "--prompt\n")

    def test_tokens_that_the_tokenizer_has_not_never_come(self):
        model = self.path / "wide"
        shutil.copytree(self.path / "gpt2", model)
        tiny_gpt.make_tokenizer(280).save(str(model / "tokenizer.json"))
        for flags in (("--temperature", 0), ("--temperature", 5, "--top-k", 0), ("--repetition-penalty", 2)):
            self.assertEqual(self.lines(model, "-n", 200, "--ignore-eos", *flags)[0]["new_tokens"], 200)

    def test_bf16_is_near(self):
        flags = ("gpt2", "--temperature", 0, "-n", 3, "--ignore-eos")
        self.assertEqual(self.texts(*flags, "--precision", "bf16"), self.texts(*flags))

    def error(self, model, *arguments, code=2):
        result = self.generate(model, "--prompt", "a", *arguments, code=code)
        for unclear in ("internal error", "frame #", "terminate", "std::"):
            self.assertNotIn(unclear, result.stderr)
        return result.stderr

    def test_directories_that_are_no_language_models_are_refused(self):
        tests = Path(__file__).resolve().parents[1]
        self.assertEqual(self.error("/nowhere"), "/nowhere: no such directory; expected a Hugging Face directory of a "
                                                 "GPT-2 or a Llama, such as <output_dir>/final of a job\n")
        self.assertEqual(self.error("gpt2/config.json").split(";")[0], "gpt2/config.json: no such directory")
        bert = tests / "data/tiny_bert"
        self.assertIn(f'{bert}/config.json: model_type: got "bert"; expected "gpt2" or "llama"\n', self.error(bert))
        (self.path / "run").mkdir()
        self.assertEqual(self.error("run"), "run: has no config.json; expected a Hugging Face directory of a GPT-2 or a "
                                            "Llama\n")
        shutil.copytree(self.path / "gpt2", self.path / "run/final")
        self.assertIn("\nhint: run/final\n", self.error("run"))

    def without(self, name, file, contents=None):
        shutil.copytree(self.path / "gpt2", self.path / name)
        (self.path / name / file).unlink()
        if contents is not None:
            (self.path / name / file).write_bytes(contents)
        return name

    def test_files_that_are_missing_or_broken_are_named(self):
        weights = (self.path / "gpt2/model.safetensors").read_bytes()
        self.assertIn("no_weights: no model.safetensors", self.error(self.without("no_weights", "model.safetensors"), code=2))
        self.assertIn("cut/model.safetensors: ",
                      self.error(self.without("cut", "model.safetensors", weights[:-100]), code=5))
        self.assertIn("no_tokenizer: no byte-level BPE tokenizer",
                      self.error(self.without("no_tokenizer", "tokenizer.json"), code=3))
        self.assertIn("the model's config is not one that texts can be generated with\n  odd_config/config.json: n_embd: ",
                      self.error(self.without("odd_config", "config.json", b'{"model_type": "gpt2", "n_embd": 0.5}')))
        self.assertIn("bad_config/config.json: not valid JSON", self.error(self.without("bad_config", "config.json", b"{")))
        config = json.loads((self.path / "gpt2/config.json").read_text())
        larger = json.dumps(config | {"n_embd": 96}).encode()
        self.assertIn("larger: the shapes of 28 weights differ", self.error(self.without("larger", "config.json", larger), code=5))
        self.assertIn("/nowhere: no such file or directory", self.error("gpt2", "--tokenizer", "/nowhere", code=2))
        tiny_gpt.make_tokenizer(400).save(str(self.path / "other.json"))
        (self.path / "other").mkdir()
        (self.path / "other.json").rename(self.path / "other/tokenizer.json")
        self.assertEqual(self.error("gpt2", "--tokenizer", "other"),
                         "other: its tokenizer has 400 tokens, the model gpt2 has 320; expected the tokenizer of the model\n")

    def test_weights_that_are_not_numbers_are_told(self):
        model = self.path / "nan"
        shutil.copytree(self.path / "gpt2", model)
        broken = AutoModelForCausalLM.from_pretrained(model)
        with torch.no_grad():
            broken.transformer.ln_f.weight.fill_(float("nan"))
        broken.save_pretrained(model)
        self.assertIn("the model's logits are inf or NaN", self.error("nan", code=6))

    def test_flags_that_are_wrong_are_refused(self):
        for flags, expected in (
                (("--temperature", -1), "--temperature: got -1; expected a number from 0 to 100"),
                (("--temperature", "nan"), "--temperature: got nan; expected a number from 0 to 100"),
                (("--top-p", 0), "--top-p: got 0; expected a number above 0, at most 1"),
                (("--repetition-penalty", "x"), "--repetition-penalty: got x; expected a number from 0.001 to 1000"),
                (("--top-k", -1), "--top-k: "), (("-n", 0), "--max-new-tokens: "), (("--precision", "fp64"), "--precision: "),
                (("--seed", -1), "--seed: "), (("--stop", ""), "--stop: got an empty string"),
                (("--frobnicate",), "no flag --frobnicate"), (("--prompt-file", "/nowhere"), "--prompt-file: "),
                (("--prompt",), "--prompt")):
            self.assertIn(expected, self.error("gpt2", *flags), flags)

    def test_a_cache_that_does_not_fit_is_told(self):
        model = self.path / "long"
        shutil.copytree(self.path / "llama", model)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 100_000}))
        memory = 64 << 30
        command = f"ulimit -v {memory >> 10}; exec '{TRAINER}' generate long --device cpu --prompt a -n 100000 --num-samples 4096"
        result = subprocess.run(["bash", "-c", command], cwd=self.path, capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertIn("out of memory: ", result.stderr)
        self.assertIn("hint: lower --num-samples or --max-new-tokens", result.stderr)
        self.assertNotIn("frame #", result.stderr)


if __name__ == "__main__":
    TRAINER = os.path.abspath(sys.argv.pop(1))
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
