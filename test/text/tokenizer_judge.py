#!/usr/bin/python3
"""Compares tokenizers with the official library: tokenizer_judge.py TOKENIZER_DUMP [NAME...] [--texts N] [--seed N]

Ids and decoded texts must be equal on generated strings, for the tokenizer.json files of models that script/setup fetched and
for small ones made here, which reach every component of the format.
"""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
DATA = JUDGES.parent / "data"
sys.path.append(str(JUDGES))

import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import AddedToken, Regex

SCRIPTS = ["Привет, как дела? Съешь ещё этих булок", "你好，世界！我们一起学习吧。", "こんにちは、セカイ。東京タワー", "안녕하세요 세계", "مرحبا بالعالم كيف حالك", "שלום עולם",
           "नमस्ते दुनिया क्या हाल है", "สวัสดีชาวโลก", "Γειά σου Κόσμε", "Ünïcödé ñandú façade Ångström", "Việt Nam đẹp lắm", "ĳssel ǅungla ﬁne ﬂow", "İstanbul ıŞıK STRASSE ß ẞ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝒜𝓁𝓅𝒽𝒶", "ª º ² ³ ½ Ⅷ ٣٤ ๓ 一二三 ①②"]
EMOJI = ["😀", "👨‍👩‍👧‍👦", "❤️", "🇩🇪", "👍🏽", "1️⃣", "🏳️‍🌈", "☃", "🤖🤖"]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "\u2003", "\u0085", "\u2028", "\x0b", "\x0c", "\u200b", "\ufeff", "    \n\n  x", "\t\t\t", "\u1680"]
MARKS = ["e\u0301", "a\u0308\u0323", "\u0301", "q\u0307\u0323", "\u1112\u1161\u11ab", "n\u0303\u0303", "\u0915\u094d\u0937", "\u05d1\u05bc\u05b0", "ff\ufb01", "\uac00\u11a8", "\u0344", "\u212b"]
CODE = ["def f(x):\n    return x**2  # square\n", "for (int i = 0; i < 10; ++i) { a[i] += b[i]; }\n", "{\"key\": [1, 2.5e-3, null]}", "<div class=\"x\">&amp;</div>", "SELECT * FROM t WHERE a='b';", "a->b::c<T>();\t// ok", "path/to/file.txt", "#!/bin/sh\necho \"$HOME\"", "camelCaseWord HTTPServer snake_case_word", "x=1;y=22;z=333;w=4444444"]
WORDS = ["don't", "DON'T", "I'll", "we'Ve", "they're", "it'ſ", "O'Reilly's", "'tis", "'S", "'", "''", "’s", "1,234,567.89", "3.14159", "007", "12345678901234567890", "U.S.A.", "e-mail", "@user", "#tag", "https://example.com/a?b=c&d=%20", "...", "!?!?", "--", "—", "“quoted”", "€100", "50%", "C++", "naïve", "COVID19x", "▁", "▁▁x", "a▁b", "<0x41>", "Ġ", "##ing", "\x00", "\x01\x1b", "\x7f"]


def strings(count, seed, prose, specials):
    """`count` byte strings, and the seed says which."""
    draw = random.Random(seed)
    def piece():
        kind = draw.randrange(13)
        if kind <= 3:
            at = draw.randrange(len(prose) - 400)
            return prose[at:at + draw.randrange(1, 300)]
        if kind == 4:
            return draw.choice(SCRIPTS)
        if kind == 5:
            return draw.choice(EMOJI) * draw.randrange(1, 4)
        if kind == 6:
            return draw.choice(SPACES) * draw.randrange(1, 6)
        if kind == 7:
            return draw.choice(MARKS) * draw.randrange(1, 4)
        if kind == 8:
            return draw.choice(CODE)
        if kind == 9:
            return draw.choice(specials) if specials else ""
        if kind == 10:
            return "".join(chr(draw.choice([draw.randrange(0x20, 0x7f), draw.randrange(0xa0, 0x250), draw.randrange(0x370, 0x590), draw.randrange(0x4e00, 0x9fa5), draw.randrange(0xac00, 0xd7a4)])) for _ in range(draw.randrange(1, 12)))
        if kind == 11:
            return draw.choice("aA0 .\n'é中") * draw.randrange(1, 70)
        return " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 6)))
    for _ in range(count):
        text = draw.choice(["", " ", "", ""]).join(piece() for _ in range(draw.randrange(0, 7))).encode()
        if draw.randrange(12) == 0:  # what is not UTF-8
            for _ in range(draw.randrange(1, 4)):
                at = draw.randrange(len(text) + 1)
                text = text[:at] + bytes(draw.randrange(128, 256) for _ in range(draw.randrange(1, 4))) + text[at + draw.randrange(3):]
        yield text


def character_map(rules):
    """A map of SentencePiece's form: u32 size of a double array, the array, texts with a NUL after each."""
    texts, nodes = b"", {}
    for key, value in rules.items():
        node = nodes
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(texts)
        texts += value.encode() + b"\0"
    units, used = [0] * 1024, {0}
    def place(node, at):
        labels = [0 if label is None else label for label in node]
        offset = next(o for o in range(1, len(units)) if all(o ^ label not in used and o ^ label < len(units) for label in labels) and (o ^ at) < 1 << 21)
        used.update(offset ^ label for label in labels)
        units[at] |= (offset ^ at) << 10 | (256 if None in node else 0)
        for label, child in node.items():
            if label is None:
                units[offset] = child | 1 << 31
            else:
                units[offset ^ label] |= label
        for label, child in node.items():
            if label is not None:
                place(child, offset ^ label)
    place(nodes, 0)
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts


def trained(model, trainer, prose, **parts):
    tokenizer = Tokenizer(model)
    for name, part in parts.items():
        if part is not None:
            setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(prose.splitlines(), trainer)
    return tokenizer


def made(prose):
    """Name -> tokenizer: every model, normalizer, pre-tokenizer, post-processor and decoder is in one of them."""
    P, N, D = pre_tokenizers, normalizers, decoders
    text = prose[:150_000] + "\n".join(SCRIPTS * 3)
    silent = {"show_progress": False}
    unigram = {"vocab_size": 1500, "unk_token": "<unk>", "special_tokens": ["<unk>", "<s>", "</s>"], **silent}
    charsmap = character_map({"ﬁ": "fi", "Å": "Å", "①": "1", "ª": "a", "e\u0301": "é", "…": "...", "\u3000": " ", "ｱ": "ア", "²": "2"})
    result = {}

    result["bert"] = trained(models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=3000, special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"], **silent), text,
                             normalizer=N.BertNormalizer(), pre_tokenizer=P.BertPreTokenizer(), decoder=D.WordPiece())
    result["bert"].post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    result["bert"].add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])

    result["t5"] = trained(models.Unigram(), trainers.UnigramTrainer(**unigram), text, normalizer=N.Sequence([N.Precompiled(charsmap), N.Replace(Regex(" {2,}"), " ")]), pre_tokenizer=P.Metaspace(), decoder=D.Metaspace())
    result["t5"].post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B:1 </s>:1", special_tokens=[("</s>", 2)])

    result["xlm"] = trained(models.Unigram(), trainers.UnigramTrainer(**unigram), text, normalizer=N.Sequence([N.Nmt(), N.NFKC(), N.Strip(), N.Lowercase()]),
                            pre_tokenizer=P.Sequence([P.WhitespaceSplit(), P.Metaspace(prepend_scheme="first")]), decoder=D.Metaspace(prepend_scheme="first"))
    result["xlm"].post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))

    result["words"] = trained(models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(vocab_size=4000, special_tokens=["<unk>"], **silent), text,
                              normalizer=N.Sequence([N.NFD(), N.StripAccents(), N.Lowercase()]), pre_tokenizer=P.Whitespace())

    result["suffix"] = trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=2000, end_of_word_suffix="</w>", special_tokens=["<unk>"], **silent), text,
                               normalizer=N.NFKD(), pre_tokenizer=P.Sequence([P.WhitespaceSplit(), P.Digits(individual_digits=True), P.Punctuation("contiguous")]), decoder=D.BPEDecoder())
    result["prefix"] = trained(models.BPE(unk_token="<unk>", fuse_unk=True), trainers.BpeTrainer(vocab_size=2000, continuing_subword_prefix="##", special_tokens=["<unk>"], limit_alphabet=60, **silent), text,
                               pre_tokenizer=P.Sequence([P.UnicodeScripts(), P.CharDelimiterSplit("e"), P.Digits(), P.FixedLength(length=7)]), decoder=D.WordPiece(cleanup=False))
    result["roberta"] = trained(models.BPE(), trainers.BpeTrainer(vocab_size=2000, initial_alphabet=P.ByteLevel.alphabet(), special_tokens=["<s>", "</s>"], **silent), text,
                                pre_tokenizer=P.ByteLevel(add_prefix_space=True), decoder=D.ByteLevel())
    result["roberta"].post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    result["byte_normalizer"] = trained(models.BPE(), trainers.BpeTrainer(vocab_size=1500, initial_alphabet=P.ByteLevel.alphabet(), **silent), text,
                                        normalizer=N.Sequence([N.NFC(), N.ByteLevel()]), pre_tokenizer=P.Split(Regex(r"Ġ?[^Ġ]+|Ġ"), "isolated"), decoder=D.ByteLevel())
    for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
        for invert in [False, True]:
            result[f"split_{behavior}_{invert}"] = trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=800, special_tokens=["<unk>"], **silent), text[:20_000],
                                                           pre_tokenizer=P.Sequence([P.Split(Regex(r"\s+|[aeiou]\w|\d"), behavior, invert), P.Punctuation(behavior)]), decoder=D.Fuse())
    result["ctc"] = trained(models.WordLevel(unk_token="<unk>"), trainers.WordLevelTrainer(special_tokens=["<pad>", "<unk>", "|"], **silent), text[:20_000], pre_tokenizer=P.Split(Regex("."), "isolated"), decoder=D.CTC())
    result["decoders"] = trained(models.BPE(unk_token="<unk>", byte_fallback=True), trainers.BpeTrainer(vocab_size=1200, special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=80, **silent), text,
                                 normalizer=N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), decoder=D.Sequence([D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]))

    flags = result["flags"] = trained(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>"], **silent), text[:50_000], normalizer=N.Lowercase(), pre_tokenizer=P.Whitespace(), decoder=D.BPEDecoder())
    flags.add_tokens([AddedToken("whale", single_word=True), AddedToken("Ahab", normalized=False), AddedToken("[L]", lstrip=True, normalized=False), AddedToken("[R]", rstrip=True), AddedToken("WHITE Whale"), AddedToken("white", lstrip=True, rstrip=True)])
    flags.add_special_tokens([AddedToken("[S]", special=True), AddedToken("[sx]", special=True, normalized=True), AddedToken("[S][S]", special=True)])
    return result


def judge(name, path, texts, dump):
    official = Tokenizer.from_file(str(path))
    official.no_truncation()
    official.no_padding()
    with tempfile.TemporaryDirectory() as folder:
        given, got = pathlib.Path(folder) / "texts.json", pathlib.Path(folder) / "results.json"
        given.write_text(json.dumps([text.hex() for text in texts]))
        done = subprocess.run([dump, path, given, got], capture_output=True, text=True, errors="replace")
        if done.returncode:
            print(f"{name}: {done.stderr.strip()}")
            return 1
        results = json.loads(got.read_text())
    failures = 0
    added = [token for token in official.get_added_tokens_decoder().items() if token[1].special]
    special = [token.content for _, token in added]
    # Of all added tokens plain text becomes those of white space only, in Weft.
    controls = [token.content for token in official.get_added_tokens_decoder().values() if token.special or token.content.strip(" \t\n\r▁")]
    unknown = json.loads(path.read_text("utf-8"))["model"]
    unknown = unknown.get("unk_id", official.token_to_id(unknown.get("unk_token") or ""))
    special_ids = {id for id, token in added if not token.content.startswith("<0x")} - {unknown}  # bytes mean characters
    streams = "ByteFallback" not in json.dumps(json.loads(path.read_text("utf-8"))["decoder"])
    for raw, mine in zip(texts, results, strict=True):
        text = raw.decode("utf-8", "replace")
        ids = official.encode(text).ids
        official.encode_special_tokens = True
        plain = official.encode(text, add_special_tokens=False).ids
        official.encode_special_tokens = False
        expected = {"ids": ids, "pair": official.encode(text, "B b").ids, "all": official.decode(ids, skip_special_tokens=False), "text": official.decode(ids)}
        if streams or "\ufffd" not in expected["all"]:  # of a damaged run of bytes a stream has given its characters already
            expected["streamed"] = expected["all"]
        # Plain text holds no special token, whatever the model could make of it; the library is not so strict.
        if not any(token.lower() in text.lower() for token in controls):
            expected["plain"] = plain
        elif special_ids & set(mine.get("plain", [])):
            failures += 1
            print(f"{name}: special tokens in plain {text!r}: {mine['plain']}"[:3000])
        if mine.get("error"):
            mine = {key: mine["error"] for key in expected}
        for key, value in expected.items():
            if mine[key] != value:
                failures += 1
                if failures <= 5:
                    print(f"{name}: {key} of {text!r}\n  official {value!r}\n  weft     {mine[key]!r}"[:3000])
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dump")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    prose = (DATA / "moby-dick.txt").read_text("utf-8")
    files = sorted((DATA / "tokenizers").glob("*.json"))
    if len(files) < 6:
        print(f"{DATA} holds {len(files)} tokenizers; run script/setup --judges")
        return 1
    total = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        own = []
        if not given.names or not {path.stem for path in files} >= set(given.names):
            for name, tokenizer in made(prose).items():
                own.append(pathlib.Path(folder) / f"{name}.json")
                tokenizer.save(str(own[-1]))
        for path in files + own:
            if given.names and path.stem not in given.names:
                continue
            added = [token["content"] for token in json.loads(path.read_text("utf-8"))["added_tokens"]]
            texts = list(strings(given.texts if path in files else given.texts // 5, given.seed, prose, added))
            failures = judge(path.stem, path, texts, given.dump)
            print(f"{path.stem:<32} {len(texts)} strings, seed {given.seed}: {failures} differences", flush=True)
            total, failed = total + len(texts), failed + failures
    print(f"{total} strings with tokenizers {tokenizers.__version__}: {failed} differences")
    return 1 if failed or not total else 0


sys.exit(main())
