// image and audio: files in granted folders and in memory, sizes, rates and spectra.
#include <fmt/format.h>

#include <algorithm>

#include "catalogue/media_values.hpp"
#include "script/engine.hpp"
#include "script/files.hpp"
#include "script/media.hpp"
#include "weft/image.hpp"

namespace weft::script {

Value snake_options(const Value& given) {
  if (!given.is_object()) return given;
  Value::Object made;
  for (const auto& [key, value] : given.members()) made.set(snake(key), snake_options(value));
  return made;
}
Value options_at(Engine& engine, Arguments arguments, std::size_t i) {
  return snake_options(value_from(engine, at(arguments, i)));
}

audio::Sound sound_at(Engine& engine, Arguments arguments, std::size_t i, const char* function) {
  const JSValueConst given = at(arguments, i);
  if (!JS_IsObject(given)) Engine::refuse(function, inspect(engine, given) + " is not a sound {samples, rate}");
  const Tensor samples =
      engine.tensor(engine.property(given, "samples").get(), fmt::format("{}: the samples", function));
  const Extent rate = engine.integer(engine.property(given, "rate").get(), fmt::format("{}: the rate", function));
  return audio::from_tensor(samples, static_cast<int>(std::clamp<Extent>(rate, 0, audio::kRateMax + 1)));
}
Local sound_to(Engine& engine, const audio::Sound& sound) {
  engine.count_work();
  Local made = engine.object();
  engine.set(made.get(), "samples", engine.make(audio::to_tensor(sound, kCpu)));
  engine.set(made.get(), "rate", {engine.context, JS_NewInt32(engine.context, sound.rate)});
  return made;
}

namespace {

/// What a file may unpack to, so that the script stays within its memory.
std::uint64_t unpacked_max(const Engine& engine, std::uint64_t otherwise, std::uint64_t bytes_each) {
  const std::uint64_t bytes = engine.options.device_memory_limit;
  return bytes ? std::min(otherwise, bytes / bytes_each) : otherwise;
}
image::Limits image_limits(const Engine& engine) {
  image::Limits limits;
  limits.pixels_max = unpacked_max(engine, limits.pixels_max, 3);
  return limits;
}
audio::Limits sound_limits(const Engine& engine) {
  return {.samples_max = unpacked_max(engine, operations::kClientSamplesMax, 4)};
}

Tensor image_at(Engine& engine, Arguments arguments, std::size_t i, const char* function) {
  return engine.tensor(at(arguments, i), fmt::format("{}: the image", function));
}
Local bytes_to(Engine& engine, std::span<const std::byte> bytes) {
  engine.check_host_bytes(bytes.size());
  return typed_array(engine, DType::u8, bytes);
}
Extent side_at(Engine& engine, Arguments arguments, std::size_t i) {
  return engine.integer(at(arguments, i), i == 1 ? "the height" : "the width");
}
int quality_of(Options& options) {
  return static_cast<int>(std::clamp<Extent>(options.integer("quality", 90), 0, 1000));
}

// ---- image

Local read_image(Engine& engine, JSValueConst, Arguments arguments) {
  const Descriptor file = engine.files->open(engine.files->place(engine.text(at(arguments, 0)), false));
  return engine.make(image::read(file.path(), image_limits(engine)));
}
Local decode_image(Engine& engine, JSValueConst, Arguments arguments) {
  return engine.make(image::decode(bytes_of_buffer(engine, at(arguments, 0), "image.decode: the file"), "the file",
                                   image_limits(engine)));
}
// encode(image, {format, quality})
Local encode_image(Engine& engine, JSValueConst, Arguments arguments) {
  const Tensor given = image_at(engine, arguments, 0, "image.encode");
  Options options(engine, at(arguments, 1), "image.encode");
  const std::string format = options.text("format", "png");
  const int quality = quality_of(options);
  options.finish();
  return bytes_to(engine, image::encode(given, format, quality));
}
// write(path, image, {quality}): the suffix of the path tells the format, and `save` writes beside it.
Local write_image(Engine& engine, JSValueConst, Arguments arguments) {
  const std::string path = engine.text(at(arguments, 0));
  const Tensor given = image_at(engine, arguments, 1, "image.write");
  Options options(engine, at(arguments, 2), "image.write");
  const int quality = quality_of(options);
  options.finish();
  const std::string suffix = std::filesystem::path(path).extension().string();
  if (suffix != ".png" && suffix != ".jpg" && suffix != ".jpeg")
    Engine::refuse("image.write", "the suffix is none of .png, .jpg, .jpeg");
  const std::vector<std::byte> file = image::encode(given, suffix == ".png" ? "png" : "jpeg", quality);
  engine.files->write(path, {reinterpret_cast<const char*>(file.data()), file.size()});
  return {};
}
// resize(image, height, width, {filter})
Local resize_image(Engine& engine, JSValueConst, Arguments arguments) {
  const Tensor given = image_at(engine, arguments, 0, "image.resize");
  Options options(engine, at(arguments, 3), "image.resize");
  const image::Filter filter = image::filter(options.text("filter", "bicubic"));
  options.finish();
  return engine.make(image::resize(given, side_at(engine, arguments, 1), side_at(engine, arguments, 2), filter));
}
Local crop_image(Engine& engine, JSValueConst, Arguments arguments) {
  return engine.make(image::center_crop(image_at(engine, arguments, 0, "image.centerCrop"),
                                        side_at(engine, arguments, 1), side_at(engine, arguments, 2)));
}

// ---- audio

Local read_sound(Engine& engine, JSValueConst, Arguments arguments) {
  const Descriptor file = engine.files->open(engine.files->place(engine.text(at(arguments, 0)), false));
  return sound_to(engine, audio::load(file.path(), sound_limits(engine)));
}
Local decode_sound(Engine& engine, JSValueConst, Arguments arguments) {
  return sound_to(engine, audio::parse(bytes_of_buffer(engine, at(arguments, 0), "audio.decode: the file"), "the file",
                                       sound_limits(engine)));
}
audio::SampleFormat format_at(Engine& engine, Arguments arguments, std::size_t i, const char* function) {
  Options options(engine, at(arguments, i), function);
  const std::string format = options.text("format", "pcm16");
  options.finish();
  return audio::sample_format(format);
}
// encode(sound, {format}), write(path, sound, {format}): WAV
Local encode_sound(Engine& engine, JSValueConst, Arguments arguments) {
  return bytes_to(engine, audio::wav_bytes(sound_at(engine, arguments, 0, "audio.encode"),
                                           format_at(engine, arguments, 1, "audio.encode")));
}
Local write_sound(Engine& engine, JSValueConst, Arguments arguments) {
  const audio::Sound sound = sound_at(engine, arguments, 1, "audio.write");
  const audio::SampleFormat format = format_at(engine, arguments, 2, "audio.write");
  engine.files->save(engine.text(at(arguments, 0)),
                     [&](const std::filesystem::path& file) { audio::save_wav(file, sound, format); });
  return {};
}
Local mono_sound(Engine& engine, JSValueConst, Arguments arguments) {
  return sound_to(engine, audio::to_mono(sound_at(engine, arguments, 0, "audio.mono")));
}
Local resample_sound(Engine& engine, JSValueConst, Arguments arguments) {
  const audio::Sound sound = sound_at(engine, arguments, 0, "audio.resample");
  const Extent rate = engine.integer(at(arguments, 1), "audio.resample: the rate");
  if (const double samples = sound.seconds() * static_cast<double>(rate) * sound.channels;
      samples > static_cast<double>(sound_limits(engine).samples_max))
    Engine::refuse("audio.resample",
                   fmt::format("the result has {:.0f} samples, more than the script may hold", samples));
  return sound_to(engine, audio::resample(sound, static_cast<int>(std::clamp<Extent>(rate, 0, audio::kRateMax + 1))));
}
Local spectrum_of(Engine& engine, JSValueConst, Arguments arguments) {
  engine.count_work();
  const audio::Spectrum made = audio::stft(engine.tensor(at(arguments, 0), "audio.stft: the signal"),
                                           operations::stft_options(options_at(engine, arguments, 1)));
  Local object = engine.object();
  engine.set(object.get(), "real", engine.make(made.real));
  engine.set(object.get(), "imaginary", engine.make(made.imaginary));
  return object;
}
// istft({real, imaginary}, {size, ..., length})
Local signal_of(Engine& engine, JSValueConst, Arguments arguments) {
  engine.count_work();
  const JSValueConst given = at(arguments, 0);
  if (!JS_IsObject(given))
    Engine::refuse("audio.istft", inspect(engine, given) + " is not a spectrum {real, imaginary}");
  const audio::Spectrum spectrum{engine.tensor(engine.property(given, "real").get(), "audio.istft: real"),
                                 engine.tensor(engine.property(given, "imaginary").get(), "audio.istft: imaginary")};
  Value options = options_at(engine, arguments, 1);
  Extent length = 0;
  if (options.is_object())
    if (const Value* wanted = options.find("length")) {
      length = wanted->integer();
      options.members().remove("length");
    }
  return engine.make(audio::istft(spectrum, operations::stft_options(options), length));
}
Local filters_of(Engine& engine, JSValueConst, Arguments arguments) {
  engine.count_work();
  return engine.make(audio::mel_filters(operations::mel_options(options_at(engine, arguments, 0))));
}
// logMelSpectrogram(x, mels)
Local log_mel_of(Engine& engine, JSValueConst, Arguments arguments) {
  engine.count_work();
  const Extent mels =
      JS_IsUndefined(at(arguments, 1)) ? 80 : engine.integer(arguments[1], "audio.logMelSpectrogram: mels");
  return engine.make(
      audio::log_mel_spectrogram(engine.tensor(at(arguments, 0), "audio.logMelSpectrogram: the samples"), mels));
}

}  // namespace

void define_media(Engine& engine) {
  Local images = engine.object();
  engine.method(images.get(), "read", native<read_image>, 1);
  engine.method(images.get(), "decode", native<decode_image>, 1);
  engine.method(images.get(), "encode", native<encode_image>, 2);
  engine.method(images.get(), "write", native<write_image>, 3);
  engine.method(images.get(), "resize", native<resize_image>, 4);
  engine.method(images.get(), "centerCrop", native<crop_image>, 3);
  engine.checked(JS_FreezeObject(engine.context, images.get()));
  add_export(engine, "image", std::move(images));
  Local sounds = engine.object();
  engine.method(sounds.get(), "read", native<read_sound>, 1);
  engine.method(sounds.get(), "decode", native<decode_sound>, 1);
  engine.method(sounds.get(), "encode", native<encode_sound>, 2);
  engine.method(sounds.get(), "write", native<write_sound>, 3);
  engine.method(sounds.get(), "mono", native<mono_sound>, 1);
  engine.method(sounds.get(), "resample", native<resample_sound>, 2);
  engine.method(sounds.get(), "stft", native<spectrum_of>, 2);
  engine.method(sounds.get(), "istft", native<signal_of>, 2);
  engine.method(sounds.get(), "melFilters", native<filters_of>, 1);
  engine.method(sounds.get(), "logMelSpectrogram", native<log_mel_of>, 2);
  engine.checked(JS_FreezeObject(engine.context, sounds.get()));
  add_export(engine, "audio", std::move(sounds));
}

}  // namespace weft::script
