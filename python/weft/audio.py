"""Sounds: files, rates, and spectra with gradients.

    talk = weft.audio.load("talk.mp3").mono().resample(16000)
    spectrum = weft.audio.stft(talk.samples, size=400, hop=160)
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from . import _weft
from ._types import ArrayLike, DeviceLike, DTypeLike
from ._weft import Tensor
from .io import Path

__all__ = ["MelScale", "SampleFormat", "Sound", "Spectrum", "Window", "decode", "hz_to_mel", "istft", "load", "log_mel_spectrogram", "mel_filters",
           "mel_to_hz", "power", "stft"]

SampleFormat = Literal["pcm8", "pcm16", "pcm24", "pcm32", "f32", "f64"]
Window = Literal["hann", "hamming", "blackman", "rectangular"]
MelScale = Literal["slaney", "htk"]


class Sound:
    """Samples f32 [channels, frames] with full scale [-1, 1], and their rate in frames per second."""

    samples: Tensor
    rate: int

    def __init__(self, samples: ArrayLike, rate: int) -> None:
        """From floats [channels, frames], or [frames] of one channel. ShapeError, DTypeError; UsageError for a rate outside of 1 to
        768000, and for samples that are not finite."""
        self.samples, self.rate = _weft._audio_check(samples, rate)

    @classmethod
    def _of(cls, native: tuple[Tensor, int]) -> Sound:
        made = cls.__new__(cls)
        made.samples, made.rate = native
        return made

    @property
    def channels(self) -> int:
        return self.samples.shape[0]

    @property
    def frames(self) -> int:
        return self.samples.shape[1]

    @property
    def seconds(self) -> float:
        return self.frames / self.rate

    def mono(self) -> Sound:
        """One channel: the mean of all."""
        return Sound._of(_weft._audio_mono(self.samples, self.rate))

    def resample(self, rate: int) -> Sound:
        """At another rate, by a windowed sinc: frequencies below 0.86 of half the lower rate pass, what lies above half of it is damped
        by 95 dB."""
        return Sound._of(_weft._audio_resample(self.samples, self.rate, rate))

    def save(self, path: Path, format: SampleFormat = "pcm16") -> None:
        """Writes a WAV file, whole or not at all. PCM rounds, and clips at full scale."""
        _weft._audio_save(path, self.samples, self.rate, format)

    def to_wav(self, format: SampleFormat = "pcm16") -> bytes:
        """The bytes of such a file."""
        return bytes(_weft._audio_encode(self.samples, self.rate, format))

    def _repr_html_(self) -> str:
        """A player, in notebooks."""
        import base64

        return f'<audio controls src="data:audio/wav;base64,{base64.b64encode(self.to_wav()).decode()}"></audio>'

    def __repr__(self) -> str:
        return f"Sound({self.channels} channels, {self.seconds:.3f} s at {self.rate} Hz)"


def load(path: Path) -> Sound:
    """A WAV, FLAC, Ogg (Vorbis, Opus) or MP3 file. FileError for a damaged one; UsageError for a packed format, if this build was made
    without libsndfile."""
    return Sound._of(_weft._audio_load(path))


def decode(data: bytes | bytearray | memoryview) -> Sound:
    """The same from the bytes of a file."""
    return Sound._of(_weft._audio_decode(bytes(data)))


class Spectrum(NamedTuple):
    """Real and imaginary part, each [..., frames, bins]."""

    real: Tensor
    imaginary: Tensor


def _frames(size: int, hop: int, window_size: int, window: str, centred: bool) -> dict[str, Any]:
    return {"size": size, "hop": hop, "window_size": window_size, "window": window, "centred": centred}


def stft(x: ArrayLike, *, size: int = 400, hop: int = 160, window_size: int = 0, window: Window = "hann", centred: bool = True) -> Spectrum:
    """The short-time Fourier transform of x [..., T]: X[f, k] = sum_n w[n] x[f hop + n] exp(-2 pi i k n / size), [..., frames,
    size / 2 + 1]. `centred`: frame f is centred at sample f hop, and x is mirrored at both ends. A `window_size` of 0 is the size."""
    return Spectrum(*_weft._audio_stft(x, _frames(size, hop, window_size, window, centred)))


def istft(spectrum: Spectrum | tuple[ArrayLike, ArrayLike], *, size: int = 400, hop: int = 160, window_size: int = 0, window: Window = "hann",
          centred: bool = True, length: int = 0) -> Tensor:
    """The signal whose transform is nearest to the spectrum (Griffin and Lim 1984): [..., length], or all samples of the frames."""
    real, imaginary = spectrum
    return _weft._audio_istft(real, imaginary, _frames(size, hop, window_size, window, centred), length)


def power(spectrum: Spectrum) -> Tensor:
    """real^2 + imaginary^2."""
    squares: Tensor = spectrum.real * spectrum.real + spectrum.imaginary * spectrum.imaginary
    return squares


def mel_filters(*, mels: int = 80, size: int = 400, rate: float = 16000, low: float = 0, high: float = 0, scale: MelScale = "slaney",
                normalized: bool = True, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Tensor:
    """Triangles over the bins of a spectrum, [mels, size / 2 + 1], whose corners are equally spaced in mels between `low` and `high`
    (0: half the rate). `normalized`: each has area 1 over the frequency in Hz."""
    options = {"mels": mels, "size": size, "rate": rate, "low": low, "high": high, "scale": scale, "normalized": normalized}
    return _weft._audio_mel_filters(options, dtype, device)


def log_mel_spectrogram(x: ArrayLike, mels: int = 80) -> Tensor:
    """The features that Whisper reads, of x [..., T] at 16 kHz: [..., mels, T / 160]."""
    return _weft._audio_log_mel(x, mels)


def hz_to_mel(hz: float, scale: MelScale = "slaney") -> float:
    return float(_weft._audio_hz_to_mel(hz, scale))


def mel_to_hz(mel: float, scale: MelScale = "slaney") -> float:
    return float(_weft._audio_mel_to_hz(mel, scale))
