// Images and sounds: files, sizes, rates and spectra.
#include "media.hpp"

#include <filesystem>

#include "bytes.hpp"
#include "catalogue/media_values.hpp"
#include "nanobind/stl/filesystem.h"
#include "values.hpp"
#include "weft/audio.hpp"
#include "weft/image.hpp"

namespace weft::python {
namespace {

using Path = std::filesystem::path;

void bind_images(nb::module_& m) {
  m.def("_image_read", [](const Path& path) { return wrapped(without_gil([&] { return image::read(path); })); });
  m.def("_image_decode", [](const nb::bytes& file) {
    const auto bytes = span_of_bytes(file);
    return wrapped(without_gil([&] { return image::decode(bytes); }));
  });
  m.def("_image_write", [](const Path& path, nb::object pixels, int quality) {
    const Tensor given = tensor_from(pixels.ptr());
    without_gil([&] { image::write(path, given, quality); });
  });
  m.def("_image_encode", [](nb::object pixels, const std::string& format, int quality) {
    const Tensor given = tensor_from(pixels.ptr());
    return bytes_of_span(without_gil([&] { return image::encode(given, format, quality); }));
  });
  m.def("_image_resize", [](nb::object pixels, Extent height, Extent width, const std::string& filter) {
    const Tensor given = tensor_from(pixels.ptr());
    const image::Filter with = image::filter(filter);
    return wrapped(without_gil([&] { return image::resize(given, height, width, with); }));
  });
  m.def("_image_center_crop", [](nb::object pixels, Extent height, Extent width) {
    const Tensor given = tensor_from(pixels.ptr());
    return wrapped(without_gil([&] { return image::center_crop(given, height, width); }));
  });
}

void bind_sounds(nb::module_& m) {
  m.def("_audio_load", [](const Path& path) { return sound_object(without_gil([&] { return audio::load(path); })); });
  m.def("_audio_decode", [](const nb::bytes& file) {
    const auto bytes = span_of_bytes(file);
    return sound_object(without_gil([&] { return audio::parse(bytes, "sound"); }));
  });
  m.def("_audio_save", [](const Path& path, nb::object samples, int rate, const std::string& format) {
    const audio::Sound sound = sound_from(samples, rate);
    const audio::SampleFormat as = audio::sample_format(format);
    without_gil([&] { audio::save_wav(path, sound, as); });
  });
  m.def("_audio_encode", [](nb::object samples, int rate, const std::string& format) {
    return bytes_of_span(audio::wav_bytes(sound_from(samples, rate), audio::sample_format(format)));
  });
  m.def("_audio_check", [](nb::object samples, int rate) { return sound_object(sound_from(samples, rate)); });
  m.def("_audio_mono",
        [](nb::object samples, int rate) { return sound_object(audio::to_mono(sound_from(samples, rate))); });
  m.def("_audio_resample", [](nb::object samples, int rate, int to) {
    const audio::Sound sound = sound_from(samples, rate);
    return sound_object(without_gil([&] { return audio::resample(sound, to); }));
  });
}

void bind_spectra(nb::module_& m) {
  m.def("_audio_stft", [](nb::object x, const nb::dict& options) {
    const audio::Spectrum made = audio::stft(tensor_from(x.ptr()), operations::stft_options(value_of(options.ptr())));
    return nb::make_tuple(wrapped(made.real), wrapped(made.imaginary));
  });
  m.def("_audio_istft", [](nb::object real, nb::object imaginary, const nb::dict& options, Extent length) {
    return wrapped(audio::istft({tensor_from(real.ptr()), tensor_from(imaginary.ptr())},
                                operations::stft_options(value_of(options.ptr())), length));
  });
  m.def(
      "_audio_mel_filters",
      [](const nb::dict& options, nb::object dtype, nb::object device) {
        return wrapped(audio::mel_filters(operations::mel_options(value_of(options.ptr())),
                                          dtype_if_given(dtype).value_or(DType::f32), device_or_default(device)));
      },
      nb::arg("options"), nb::arg("dtype").none(), nb::arg("device").none());
  m.def("_audio_log_mel",
        [](nb::object x, Extent mels) { return wrapped(audio::log_mel_spectrogram(tensor_from(x.ptr()), mels)); });
  m.def("_audio_hz_to_mel",
        [](double hz, const std::string& scale) { return audio::hz_to_mel(hz, audio::mel_scale(scale)); });
  m.def("_audio_mel_to_hz",
        [](double mel, const std::string& scale) { return audio::mel_to_hz(mel, audio::mel_scale(scale)); });
}

}  // namespace

nb::tuple sound_object(const audio::Sound& sound) {
  return nb::make_tuple(wrapped(audio::to_tensor(sound, kCpu)), sound.rate);
}

audio::Sound sound_from(const nb::object& samples, int rate) {
  const Tensor given = tensor_from(samples.ptr());
  return without_gil([&] { return audio::from_tensor(given, rate); });
}

void bind_media(nb::module_& m) {
  bind_images(m);
  bind_sounds(m);
  bind_spectra(m);
}

}  // namespace weft::python
