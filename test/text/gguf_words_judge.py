#!/usr/bin/python3
"""How vocabularies of GGUF files cut words, judged by the official library: gguf_words_judge.py WEFT [NAME...]

For each name of tokenizer.ggml.pre a byte-level BPE is trained with the expressions that the tokenizer.json files of such models
have. The gguf package writes it as a GGUF file, and Weft must give the ids of the library.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.append(str(JUDGES))

import gguf  # noqa: E402
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers  # noqa: E402

WEFT = pathlib.Path(sys.argv[1]).resolve()
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LINES = r"[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+%s?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*%s?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+") % (ENDINGS, ENDINGS)
# Ranges of the letters that DeepSeek's first expression has, by their numbers.
CASED = ("41-5A 61-7A B5-B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F-37F 386-386 388-38A 38C-38C 38E-3A1 3A3-3F5 "
         "3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 "
         "1F48-1F4D 1F50-1F57 1F59-1F59 1F5B-1F5B 1F5D-1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE-1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB "
         "1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102-2102 2107-2107 210A-2113 2115-2115 2119-211D 2124-2124 2126-2126 2128-2128 212A-212D 212F-2134 "
         "2139-2139 213C-213F 2145-2149 214E-214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3 A640-A66D A680-A69B A722-A76F A771-A787 "
         "A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943")
CASED = "".join("\\x{%s}-\\x{%s}" % tuple(pair.split("-")) for pair in CASED.split())
WIDE = r"[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]"
HAN = r"[\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + ENDINGS + r"?|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + ENDINGS +
        r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
RULES = {
    "deepseek-llm": [r"[\r\n]", r"\s?[" + CASED + "]+", r"\s?" + WIDE + "+", r"\s+$", HAN, r"\p{N}"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN, r"\p{N}"],
    "kimi-k2": [KIMI],
    "jais-2": [ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" +
               "|".join(r"\s{%d}(?!\S)" % n for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"],
    "exaone-moe": [ENDINGS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "minicpm5": [r"\p{N}{1,3}", ENDINGS + "|" + LINES % r"\p{N}+"],
    "ufakzeka": [LINES % r"\p{N}"],
    "laguna": [r"[^\n]+|[\n]+", ENDINGS + "|" + LINES % r"\p{N}"],
    "gemma4": None,  # pieces with markers for spaces, and bytes for what has no piece
    # Known before; they show that this judge can pass and fail.
    "qwen2": [ENDINGS + "|" + LINES % r"\p{N}"],
    "gpt-4o": [O200K],
}
SCRIPTS = ["Привет, как дела? Съешь ещё этих булок", "你好，世界！我们一起学习吧。", "こんにちは、セカイ。東京タワー", "안녕하세요 세계", "مرحبا بالعالم كيف حالك", "नमस्ते दुनिया क्या हाल है",
           "Γειά σου Κόσμε ᾳᾲ", "Ünïcödé ñandú façade Ångström", "ĳssel ǅungla ﬁne ﬂow", "Türkiye'nin İstanbul'da ıŞıK", "𐐀𐐨 𝔘𝔫𝔦 ª º ² ³ ½ Ⅷ ٣٤ ๓ ①②", "Հայաստան ՠֈ ᲐᲑ ℂℊ Ꭰꭰ"]
PIECES = SCRIPTS + [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2003", " " * 37, "don't", "DON'T", "we'Ve", "'S", "1,234,567.89", "007",
                    "12345678901234567890", "U.S.A.", "https://example.com/a?b=c&d=%20", "...", "!?!?", "—", "“quoted”", "（全角）！", "€100", "50%", "C++;", "camelCaseWord HTTPServer",
                    "e\u0301a\u0308", "😀👍🏽", "def f(x):\n    return x**2  # square\n", "a.b/c\n/d", "漢字とkanji混合Text", "  trailing   ", "x1y22z333"]


def texts(count, prose, draw):
    for _ in range(count):
        parts = []
        for _ in range(draw.randrange(0, 8)):
            at = draw.randrange(len(prose) - 200)
            parts.append(draw.choice([prose[at:at + draw.randrange(1, 120)], draw.choice(PIECES), draw.choice(PIECES) * draw.randrange(1, 4)]))
        yield draw.choice(["", "", " "]).join(parts)


def trained_with_markers(prose):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(prose.splitlines(keepends=True), trainers.BpeTrainer(vocab_size=2000, special_tokens=special, show_progress=False))
    # The trainer makes specials of the bytes, which are pieces in files of such models.
    whole = json.loads(tokenizer.to_str())
    whole["added_tokens"] = [each for each in whole["added_tokens"] if not each["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(whole))


def trained(expressions, prose):
    if expressions is None:
        return trained_with_markers(prose)
    tokenizer = Tokenizer(models.BPE())
    cuts = [pre_tokenizers.Split(Regex(each), "isolated") for each in expressions]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(vocab_size=2000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator((prose + "\n".join(PIECES * 4)).splitlines(keepends=True), trainer)
    return tokenizer


def put(path, name, tokenizer):
    model = json.loads(tokenizer.to_str())["model"]
    writer = gguf.GGUFWriter(path, "llama")
    tokens, has_markers = [token for token, _ in sorted(model["vocab"].items(), key=lambda pair: pair[1])], name == "gemma4"
    writer.add_tokenizer_model(name if has_markers else "gpt2")
    writer.add_tokenizer_pre("gemma4" if has_markers else name)
    writer.add_token_list(tokens)
    kinds = {"<pad>": 3, "<eos>": 3, "<bos>": 3, "<unk>": 2} if has_markers else {}
    writer.add_token_types([kinds.get(token, 6 if has_markers and token.startswith("<0x") else 1) for token in tokens])
    if has_markers:
        writer.add_unk_token_id(tokens.index("<unk>"))
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    prose = (JUDGES.parent / "data" / "moby-dick.txt").read_text("utf-8")
    failures = total = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.gguf"
        for name, expressions in RULES.items():
            if sys.argv[2:] and name not in sys.argv[2:]:
                continue
            tokenizer = trained(expressions, prose[:60_000])
            put(path, name, tokenizer)
            given = list(texts(600, prose, random.Random(name)))
            done = subprocess.run([WEFT, "tokenize", "--model", path, "--batch", "--json", "--no-special"], capture_output=True,
                                  input="\n".join(map(json.dumps, given)) + "\n", text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            got = [json.loads(line)["ids"] for line in done.stdout.splitlines()]
            wrong = [(text, mine) for text, mine in zip(given, got, strict=True) if tokenizer.encode(text).ids != mine]
            for text, mine in wrong[:2]:
                print(f"{name}: {text!r}\n  official {tokenizer.encode(text).tokens}\n  weft     {[tokenizer.id_to_token(i) for i in mine]}")
            print(f"{name}: {len(given)} texts, {len(wrong)} differences", flush=True)
            failures, total = failures + len(wrong), total + len(given)
    return 1 if failures or not total else 0


sys.exit(main())
