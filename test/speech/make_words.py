"""What OpenAI's whisper makes of the tiny random Whisper of make.py: make_words.py [--check] writes words.json for words_test.cpp.

Times of words (add_word_timestamps), and texts of beams (DecodingTask) with equal weights. Made with openai-whisper 20250625, torch 1.13.
"""
import importlib.util
import pathlib
import sys

import numpy as np
import tiktoken
import torch
import transformers
import whisper
from whisper import decoding, timing
from whisper.tokenizer import Tokenizer

HERE = pathlib.Path(__file__).parent
HEADS = [[2, 0], [1, 1]]
END_SCALE = -2
NAMES = [("self_attn.q_proj", "attn.query"), ("self_attn.k_proj", "attn.key"), ("self_attn.v_proj", "attn.value"), ("self_attn.out_proj", "attn.out"),
         ("self_attn_layer_norm", "attn_ln"), ("encoder_attn.q_proj", "cross_attn.query"), ("encoder_attn.k_proj", "cross_attn.key"),
         ("encoder_attn.v_proj", "cross_attn.value"), ("encoder_attn.out_proj", "cross_attn.out"), ("encoder_attn_layer_norm", "cross_attn_ln"),
         ("fc1", "mlp.0"), ("fc2", "mlp.2"), ("final_layer_norm", "mlp_ln"), ("encoder.layer_norm", "encoder.ln_post"), ("decoder.layer_norm", "decoder.ln"),
         ("embed_tokens", "token_embedding"), ("embed_positions.weight", "positional_embedding"), ("layers.", "blocks."), ("model.", "")]

spec = importlib.util.spec_from_file_location("whisper_make", HERE / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


def renamed(key):
    for old, new in NAMES:
        key = key.replace(old, new)
    return key


def model_of():
    c = make.CONFIG
    dims = whisper.model.ModelDimensions(c["num_mel_bins"], c["max_source_positions"], c["d_model"], c["encoder_attention_heads"], c["encoder_layers"], c["vocab_size"],
                                         c["max_target_positions"], c["d_model"], c["decoder_attention_heads"], c["decoder_layers"])
    model = whisper.model.Whisper(dims)
    for part, inner in ((model.encoder, c["encoder_ffn_dim"]), (model.decoder, c["decoder_ffn_dim"])):
        for block in part.blocks:
            block.mlp[0], block.mlp[2] = whisper.model.Linear(c["d_model"], inner), whisper.model.Linear(inner, c["d_model"])
    shapes = {key: list(value.shape) for key, value in transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**c)).state_dict().items()}
    state = {renamed(key): torch.tensor(make.random_values(key, shape)) for key, shape in shapes.items() if key != "proj_out.weight"}
    missing, surplus = model.load_state_dict(state, strict=False)
    assert not surplus and set(missing) <= {"alignment_heads", "decoder.mask"}, (missing, surplus)
    return model.eval()


def align_by(model, heads):
    """Without a list: what the library takes for models that it does not know."""
    mask = torch.zeros(model.dims.n_text_layer, model.dims.n_text_head, dtype=torch.bool)
    mask[model.dims.n_text_layer // 2:] = heads is None
    for layer, head in heads or []:
        mask[layer, head] = True
    model.register_buffer("alignment_heads", mask.to_sparse(), persistent=False)


def tokenizer_of():
    special = dict(make.ID)
    for i in range(make.POSITIONS + 1):
        special[f"<|{i * 0.02:.2f}|>"] = make.ID["<|notimestamps|>"] + 1 + i
    encoding = tiktoken.Encoding("tiny", pat_str=r"(?s:.)", mergeable_ranks={bytes([i]): i for i in range(256)}, special_tokens=special)
    tokenizer = Tokenizer(encoding=encoding, num_languages=3, language="de", task="transcribe")
    tokenizer.sot_sequence = tuple(make.ID[name] for name in ("<|startoftranscript|>", "<|de|>", "<|transcribe|>"))
    return tokenizer


def tokens(text, begin, end):
    """A segment's tokens with its times, in steps of 0.02 s."""
    first = make.ID["<|notimestamps|>"] + 1
    return [first + begin, *text.encode(), first + end]


# Windows by name: pieces (text, begin and end in steps), the frame of the window, and its frames.
TEXTS = {
    "marks": ([('Hi "you", it\'s (ok). Go', 0, 40)], 0, 98),
    "two segments": ([(" One two.", 3, 20), (" Three, four", 24, 44)], 100, 98),
    "short window": ([(" a bit", 0, 15)], 30, 31),
    "characters": ([(" “né” — 你好。 x", 2, 48)], 0, 98),
    "one word": ([(" word", 10, 12)], 7, 98),
    "a word between segments": ([(" over", 0, 20), ("lap it", 21, 40)], 0, 98),
    "a mark between segments": ([(" first", 0, 20), (". Second", 21, 40)], 0, 98),
    "after a pause": ([(" late words", 30, 46)], 250, 98),
    "sentences": ([(" A b. C d? E!", 1, 47)], 0, 98),
}


def words(model, tokenizer, mel):
    """Each window as if it were the first one."""
    made = []
    for name, (pieces, first, frames) in TEXTS.items():
        segments = []
        for text, begin, end in pieces:
            segments.append({"seek": first, "start": first * 0.01 + begin * 0.02, "end": first * 0.01 + end * 0.02, "tokens": tokens(text, begin, end)})
        timing.add_word_timestamps(segments=segments, model=model, tokenizer=tokenizer, mel=mel, num_frames=frames, last_speech_timestamp=0.0)
        made.append({"name": name, "first": first, "frames": frames, "pieces": [[begin * 2, end * 2] for _, begin, end in pieces],
                     "tokens": [s["tokens"] for s in segments], "segments": [[round(float(s["start"]), 4), round(float(s["end"]), 4)] for s in segments],
                     "words": [[[round(float(w["start"]), 4), round(float(w["end"]), 4), w["word"], float(f"{w['probability']:.3g}")] for w in s["words"]] for s in segments]})
    return made


def paths():
    """Parts alone: medians of rows, what is heard in each state, and paths through costs. Values as random_values of words_test.cpp."""
    medians = []
    for size in (3, 4, 7, 30):
        row = torch.tensor(make.random_values(f"row{size}", [1, size]))
        medians.append([size, make.numbers(timing.median_filter(row.unsqueeze(0).unsqueeze(0), 7)[0, 0] if size > 3 else row)])
    begins = []
    for rows, columns in ((1, 1), (1, 9), (6, 1), (4, 9), (9, 4), (30, 80)):
        text, time = timing.dtw(torch.tensor(make.random_values(f"costs{rows}x{columns}", [rows, columns])))
        begins.append([rows, columns, [int(time[list(text).index(row)]) for row in range(rows)]])
    heads, count, states, kept = 2, 9, 40, 33
    weights = torch.tensor(make.random_values("scores", [heads, count, states]))[:, :, :kept].mul(20).softmax(-1)
    std, mean = torch.std_mean(weights, dim=-2, keepdim=True, unbiased=False)
    heard = timing.median_filter((weights - mean) / std, 7).mean(axis=0)
    return {"medians": medians, "begins": begins, "heard": make.numbers(heard, 5)}


def beams(model, tokenizer, mel):
    """With a row of the end that is longer than those of other tokens, so that texts end."""
    with torch.no_grad():
        model.decoder.token_embedding.weight[make.ID["<|endoftext|>"]] *= END_SCALE
    decoding.get_tokenizer = lambda *_, **__: tokenizer
    made = []
    for options in ({"beam_size": 5}, {"beam_size": 2}, {"beam_size": 3, "patience": 2.0}, {"beam_size": 4, "length_penalty": 0.5}, {"beam_size": 6, "patience": 0.5, "length_penalty": 1.0},
                    {"beam_size": 8, "sample_len": 5}):
        for timestamps, suppressed in ((False, [1, 5]), (False, [129, 83, 186, 313]), (True, [1, 5]), (True, [129, 83, 186])):
            asked = decoding.DecodingOptions(language="de", suppress_tokens=suppressed, without_timestamps=not timestamps, max_initial_timestamp=12.0, fp16=False, **options)
            task = decoding.DecodingTask(model, asked)
            result = task.run(mel.unsqueeze(0))[0]
            made.append({**options, "timestamps": timestamps, "suppressed": list(task._get_suppress_tokens()), "tokens": result.tokens,
                         "mean_log_probability": float(f"{result.avg_logprob:.6f}")})
    return made


def main(check):
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    model, tokenizer = model_of(), tokenizer_of()
    extractor = transformers.WhisperFeatureExtractor(feature_size=make.CONFIG["num_mel_bins"], chunk_length=1)
    mel = torch.tensor(extractor(make.sound(0.98), sampling_rate=16000, return_tensors="np").input_features[0], dtype=torch.float32)
    with torch.no_grad():
        windows = []
        for heads in (HEADS, None):
            align_by(model, heads)
            windows.append({"alignment_heads": heads, "windows": words(model, tokenizer, mel)})
        by_characters = tokenizer.split_tokens_on_unicode(list("你好 é".encode()))
        made = {"words": windows, "end_scale": END_SCALE, "by_characters": [list(pair) for pair in zip(*by_characters)], "beams": beams(model, tokenizer, mel), **paths()}
    for case in windows[0]["windows"]:
        print(case)
    for case in made["beams"]:
        print({**case, "suppressed": len(case["suppressed"])})
    return make.audio.keep(HERE / "words.json", made, check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
