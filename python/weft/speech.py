"""Speech: sounds to texts (Whisper, Moonshine, wav2vec 2.0, HuBERT), and texts to sounds (VITS, Piper).

    model = weft.speech.load_transcriber("whisper-tiny")
    for segment in model.stream(weft.audio.load("talk.wav")):
        print(segment.begin, segment.text)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from . import _weft
from ._types import DeviceLike
from ._weft import Tensor, Tokenizer
from .audio import Sound
from .io import Path

__all__ = ["Detector", "Segment", "Stream", "Transcriber", "Transcript", "Voice", "Word", "is_transcriber", "is_voice", "language_name",
           "load_detector", "load_transcriber", "load_voice"]

Task = Literal["transcribe", "translate"]
WordCues = Literal["none", "marks", "each"]
Progress = Callable[[int, int], Any]


@dataclass
class Word:
    """A word with its times in seconds. The text has the space before it: the words of a segment, joined, are its text."""

    begin: float
    end: float
    text: str
    probability: float


@dataclass
class Segment:
    """A piece of speech between two moments, in seconds. What follows the tokens is of the window that it is in."""

    begin: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    mean_log_probability: float
    compression_ratio: float
    no_speech_probability: float
    words: list[Word] = field(default_factory=list)  #: if they were asked for

    @classmethod
    def _of(cls, native: dict[str, Any]) -> Segment:
        return cls(**{**native, "words": [Word(**each) for each in native["words"]]})


@dataclass
class Transcript:
    text: str
    language: str  #: code, such as "en"
    language_probability: float  #: 1 if it was given
    seconds: float  #: of the sound
    segments: list[Segment]

    @classmethod
    def _of(cls, native: dict[str, Any]) -> Transcript:
        return cls(**{**native, "segments": [Segment._of(each) for each in native["segments"]]})

    def _cues(self) -> list[tuple[tuple[float, float, str], list[tuple[float, float, str]]]]:
        return [((each.begin, each.end, each.text), [(word.begin, word.end, word.text) for word in each.words]) for each in self.segments]

    def to_srt(self, words: WordCues = "none") -> str:
        """As a file of subtitles: SubRip. With words="each", every word is a cue."""
        return str(_weft._to_srt(self._cues(), words))

    def to_vtt(self, words: WordCues = "none") -> str:
        """WebVTT. With words="marks", the time of each word is inside of its segment's cue, as for karaoke."""
        return str(_weft._to_vtt(self._cues(), words))


T = TypeVar("T")


class Stream(Generic[T]):
    """What a model makes, piece by piece, on a thread of its own. The model is in use until the end, or until `stop`."""

    def __init__(self, native: Any, piece: Callable[[Any], T]) -> None:
        self._native, self._piece = native, piece

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._piece(self._native.next())

    def stop(self) -> None:
        """Ends the work soon. What was made before stays."""
        self._native.stop()


class SegmentStream(Stream[Segment]):
    def result(self) -> Transcript:
        """Waits for the end, and gives all segments."""
        return Transcript._of(self._native.result())


class Transcriber:
    """A speech model on its device. One thread at a time."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def transcribe(self, sound: Sound, *, on_segment: Callable[[Segment], Any] | None = None, **options: Any) -> Transcript:
        """Writes down a sound of any length, rate and number of channels. Options:

        language     a code ("de") or a name ("german"); otherwise it is detected in the first 30 s
        task         "transcribe", or "translate": into English
        timestamps   True: tokens of time cut the text into segments; otherwise each window of 30 s is one
        speech       pairs (begin, end) of seconds that have speech, as Detector.spans finds them; nothing else is heard
        words        True: segments have words with times
        beam_size, patience, length_penalty
                     beginnings of texts that are kept at temperature 0, and how the search ends and chooses
        best_of      texts that are drawn at temperatures above 0
        temperatures, compression_ratio_max, log_probability_min
                     the next temperature is used where a text repeats itself or is improbable
        no_speech_max, condition_on_previous, prompt, max_tokens, seed

        `on_segment` is called with each segment once it is certain. UsageError for a language that the model lacks, and for options that
        are unknown or out of range."""
        call = None if on_segment is None else (lambda native: on_segment(Segment._of(native)))
        return Transcript._of(self._native.transcribe(sound.samples, sound.rate, options, call))

    def stream(self, sound: Sound, **options: Any) -> SegmentStream:
        """The same as an iterator of segments, which come as they are certain; `result()` gives the transcript."""
        return SegmentStream(self._native.stream(sound.samples, sound.rate, options), Segment._of)

    def detect_language(self, sound: Sound) -> list[tuple[str, float]]:
        """Languages of the first window with their probabilities, the most probable one first."""
        return list(self._native.detect_language(sound.samples, sound.rate))

    def features(self, sound: Sound, begin: float = 0) -> Tensor:
        """What the encoder reads of the window that begins at a second: f32 [mels, frames]."""
        return self._native.features(sound.samples, sound.rate, begin)

    def encode(self, features: Tensor) -> Tensor:
        """The states of the encoder: f32 [frames / 2, width]."""
        return self._native.encode(features)

    @property
    def kind(self) -> str:
        """"whisper", "moonshine", "wav2vec2" or "hubert"."""
        return str(self._native.kind())

    @property
    def is_ctc(self) -> bool:
        """Whether it is a recogniser by CTC, which has no languages, prompts, beams or parts of Whisper."""
        return bool(self._native.is_ctc())

    def frame_logits(self, sound: Sound) -> Tensor:
        """Of a recogniser by CTC: the logits of the tokens for each frame of the sound, f32 [frames, vocabulary]."""
        return self._native.frame_logits(sound.samples, sound.rate)

    @property
    def languages(self) -> list[str]:
        """Codes, in the order of their tokens."""
        return list(self._native.languages())

    @property
    def is_multilingual(self) -> bool:
        return bool(self._native.is_multilingual())

    def tokenizer(self) -> Tokenizer:
        return self._native.tokenizer()

    def __repr__(self) -> str:
        return str(self._native.describe())


class Voice:
    """A voice on its device. One thread at a time."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def speak(self, text: str, **options: Any) -> Sound:
        """Speaks a text sentence by sentence. Options: rate (above 1: faster), noise and duration_noise (how much the voice varies), speaker (number or name),
        seed, pause (seconds between sentences), is_phonemes. UsageError for options out of range, and for a text without a character
        that the voice knows."""
        return Sound._of(self._native.speak(text, options))

    def stream(self, text: str, **options: Any) -> Stream[Sound]:
        """The same as an iterator of the sounds of sentences, pauses included."""
        return Stream(self._native.stream(text, options), Sound._of)

    def encode(self, text: str, is_phonemes: bool = False) -> Sequence[int]:
        """The tokens of a text, which is not cut into sentences."""
        return list(self._native.encode(text, is_phonemes))

    @property
    def rate(self) -> int:
        """Frames per second of the sounds."""
        return int(self._native.rate())

    @property
    def speakers(self) -> int:
        return int(self._native.speakers())

    @property
    def speaker_names(self) -> list[str]:
        """In the order of their numbers; empty if they have none."""
        return list(self._native.speaker_names())

    def __repr__(self) -> str:
        return str(self._native.describe())


class Detector:
    """Finds the speech in a sound. One thread at a time."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def probabilities(self, sound: Sound) -> list[float]:
        """Of speech in each piece of 32 ms."""
        return list(self._native.probabilities(sound.samples, sound.rate))

    def spans(self, sound: Sound, *, threshold: float = 0.5, speech_min: float = 0.25, silence_min: float = 0.1,
              margin: float = 0.03) -> list[tuple[float, float]]:
        """Begins and ends of speech in seconds, for `transcribe(speech=...)`. Shorter speech is left out, shorter silence is part of speech,
        and each span gets a margin."""
        return list(self._native.spans(sound.samples, sound.rate, threshold, speech_min, silence_min, margin))


def load_detector(file: Path) -> Detector:
    """Silero's detector of speech, version 5 or 6 (.onnx)."""
    return Detector(_weft._load_detector(file))


def load_transcriber(folder: Path, *, device: DeviceLike | None = None, progress: Progress | None = None) -> Transcriber:
    """A folder of Whisper or Moonshine: config.json, tokenizer.json and safetensors; or of wav2vec 2.0 or HuBERT with a head for CTC: config.json,
    vocab.json and safetensors. progress(done, total) gets bytes of weights. FileError that names file, place and cure."""
    return Transcriber(_weft._load_transcriber(folder, device, progress))


def load_voice(path: Path, *, device: DeviceLike | None = None, progress: Progress | None = None) -> Voice:
    """A folder of VITS (config.json, vocab.json and safetensors), or a voice of Piper: .onnx with .onnx.json beside it."""
    return Voice(_weft._load_voice(path, device, progress))


def is_transcriber(folder: Path) -> bool:
    """Whether `load_transcriber` reads it."""
    return bool(_weft._is_transcriber(folder))


def is_voice(path: Path) -> bool:
    """Whether `load_voice` reads it."""
    return bool(_weft._is_voice(path))


def language_name(code: str) -> str:
    """"english" for "en"."""
    return str(_weft._language_name(code))
