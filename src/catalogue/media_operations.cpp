// Images and sounds as operations: files, sizes, rates and spectra. Files of the machine are resources, weights:PATH, as those of tensors.
#include <fmt/format.h>

#include "base/file.hpp"
#include "catalogue/engine_errors.hpp"
#include "catalogue/families.hpp"
#include "catalogue/media_values.hpp"
#include "weft/image.hpp"

namespace weft::operations {
namespace {

constexpr const char* kSideSchema = R"({"type": "integer", "minimum": 1, "maximum": 32768})";
constexpr const char* kQualitySchema =
    R"({"type": "integer", "minimum": 1, "maximum": 100, "default": 90, "description": "of JPEG"})";
constexpr const char* kBytesSchema = R"({"x-tensor": {"dtypes": ["u8"]}, "description": "[bytes]"})";
constexpr const char* kSampleFormats =
    R"({"enum": ["pcm8", "pcm16", "pcm24", "pcm32", "f32", "f64"], "default": "pcm16"})";
constexpr const char* kFrameProperties = R"(
  "size": {"type": "integer", "minimum": 1, "maximum": 1048576, "default": 400, "description": "samples of a frame"},
  "hop": {"type": "integer", "minimum": 1, "maximum": 1048576, "default": 160},
  "window_size": {"type": "integer", "minimum": 0, "maximum": 1048576, "default": 0, "description": "0: that of a frame"},
  "window": {"enum": ["hann", "hamming", "blackman", "rectangular"], "default": "hann"},
  "centred": {"type": "boolean", "default": true})";

/// Adds operations of one namespace.
struct MediaFamily {
  Registry& registry;
  const CatalogueOptions& options;
  const char* space;

  /// `files`: "read" or "write" for an operation on a file of the machine, whose path is in the input.
  void add(const char* name, Kind kind, const char* description, const std::string& properties, const char* required,
           const char* output, const char* files, std::function<Value(Context&)> run) const {
    Specification s{.space = space, .name = name, .kind = kind, .title = name, .description = description};
    s.input = schema_of(
        fmt::format(R"({{"type": "object", "required": [{}], "additionalProperties": false, "properties": {{{}}}}})",
                    required, properties));
    s.output = schema_of(output);
    s.errors = engine_errors();
    s.errors.push_back({"FILE_ERROR", "a file that is missing, damaged, too large, or of an unknown format"});
    s.access.scopes = {"media:run"};
    if (files) {
      s.access.scopes.push_back(fmt::format("files:{}", files));
      s.access.resource_type = "weights";
      s.access.resource_action = files;
      s.access.resource_input = "path";
    }
    registry.add(std::move(s), [run = std::move(run), most = options.tensor_bytes_max](Context& call) {
      return with_codes([&] {
        Value answer = run(call);
        for (const auto& [key, member] : answer.members())
          if (member.is_tensor()) check_size(member.tensor(), most);
        return answer;
      });
    });
  }
};

constexpr const char* kNothing = R"({"type": "object", "maxProperties": 0})";
constexpr const char* kImageOutput =
    R"({"type": "object", "required": ["image"], "properties": {"image": {"x-tensor": true}}})";
constexpr const char* kSoundOutput = R"({"type": "object", "required": ["sound", "rate"], "properties": {
  "sound": {"x-tensor": {"dtypes": ["f32"]}, "description": "[channels, frames]"}, "rate": {"type": "integer"}}})";

void add_image_operations(Registry& registry, const CatalogueOptions& options) {
  const MediaFamily images{registry, options, "image"};
  const std::string image = fmt::format(R"("image": {})", kImageSchema), path = R"("path": {"type": "string"})";
  const std::string size = fmt::format(R"("height": {0}, "width": {0})", kSideSchema),
                    quality = fmt::format(R"("quality": {})", kQualitySchema);
  const auto image_in = [](Context& call) { return image_of(call.input("image").tensor()); };
  const auto extent = [](Context& call, const char* name) { return call.input(name).integer(); };

  images.add("decode", Kind::query,
             "The pixels of an image file: u8 [height, width, 3]; of an animation the first frame.",
             fmt::format(R"("file": {})", kBytesSchema), R"("file")", kImageOutput, nullptr, [](Context& call) {
               return Value::object({{"image", image::decode(bytes_of(call.input("file").tensor(), "the file"))}});
             });
  images.add(
      "read", Kind::query, "The same of a file of the machine.", path, R"("path")", kImageOutput, "read",
      [options](Context& call) {
        return Value::object({{"image", image::read(allowed_path(options, call.input("path").string(), false))}});
      });
  images.add("encode", Kind::query, "The bytes of a PNG or JPEG file of an image.",
             image + R"(, "format": {"enum": ["png", "jpeg"], "default": "png"}, )" + quality, R"("image")",
             R"({"type": "object", "required": ["file"], "properties": {"file": {"x-tensor": {"dtypes": ["u8"]}}}})",
             nullptr, [image_in](Context& call) {
               return Value::object(
                   {{"file", tensor_of_bytes(image::encode(image_in(call), call.input("format").string(),
                                                           static_cast<int>(call.input("quality").integer())))}});
             });
  images.add("write", Kind::mutation,
             "Writes an image to a file of the machine, whole or not at all: .png, .jpg or .jpeg.",
             image + ", " + path + ", " + quality, R"("image", "path")", kNothing, "write",
             [options, image_in](Context& call) {
               image::write(allowed_path(options, call.input("path").string(), true), image_in(call),
                            static_cast<int>(call.input("quality").integer()));
               return Value(Value::Object());
             });
  images.add(
      "resize", Kind::query, "An image in another size, with the pixels that Pillow gives.",
      image + ", " + size +
          R"(, "filter": {"enum": ["nearest", "bilinear", "bicubic", "lanczos"], "default": "bicubic"})",
      R"("image", "height", "width")", kImageOutput, nullptr, [image_in, extent](Context& call) {
        return Value::object({{"image", image::resize(image_in(call), extent(call, "height"), extent(call, "width"),
                                                      image::filter(call.input("filter").string()))}});
      });
  images.add("center_crop", Kind::query, "The middle of an image, with zeros around one that is smaller.",
             image + ", " + size, R"("image", "height", "width")", kImageOutput, nullptr,
             [image_in, extent](Context& call) {
               return Value::object(
                   {{"image", image::center_crop(image_in(call), extent(call, "height"), extent(call, "width"))}});
             });
}

void add_audio_operations(Registry& registry, const CatalogueOptions& options) {
  const MediaFamily sounds{registry, options, "audio"};
  const std::string path = R"("path": {"type": "string"})", format = fmt::format(R"("format": {})", kSampleFormats);
  const std::string sound = kSoundProperties, frames = kFrameProperties;
  const std::string signal = R"("x": {"x-tensor": true, "description": "floats [..., samples]"})";

  sounds.add("decode", Kind::query, "The samples of a sound file: f32 [channels, frames], and their rate.",
             fmt::format(R"("file": {})", kBytesSchema), R"("file")", kSoundOutput, nullptr, [](Context& call) {
               return to_value(audio::parse(bytes_of(call.input("file").tensor(), "the file"), "the file",
                                            {.samples_max = kClientSamplesMax}));
             });
  sounds.add("read", Kind::query, "The same of a file of the machine.", path, R"("path")", kSoundOutput, "read",
             [options](Context& call) {
               return to_value(audio::load(allowed_path(options, call.input("path").string(), false),
                                           {.samples_max = kClientSamplesMax}));
             });
  sounds.add("encode", Kind::query, "The bytes of a WAV file of a sound.", sound + ", " + format, R"("sound")",
             R"({"type": "object", "required": ["file"], "properties": {"file": {"x-tensor": {"dtypes": ["u8"]}}}})",
             nullptr, [](Context& call) {
               return Value::object(
                   {{"file", tensor_of_bytes(audio::wav_bytes(sound_of(call.input()),
                                                              audio::sample_format(call.input("format").string())))}});
             });
  sounds.add("write", Kind::mutation, "Writes a sound to a WAV file of the machine, whole or not at all.",
             sound + ", " + path + ", " + format, R"("sound", "path")", kNothing, "write", [options](Context& call) {
               audio::save_wav(allowed_path(options, call.input("path").string(), true), sound_of(call.input()),
                               audio::sample_format(call.input("format").string()));
               return Value(Value::Object());
             });
  sounds.add("mono", Kind::query, "One channel: the mean of all.", sound, R"("sound")", kSoundOutput, nullptr,
             [](Context& call) { return to_value(audio::to_mono(sound_of(call.input()))); });
  sounds.add("resample", Kind::query, "A sound at another rate, by a windowed sinc.",
             sound + R"(, "to": {"type": "integer", "minimum": 1, "maximum": 768000})", R"("sound", "to")",
             kSoundOutput, nullptr, [](Context& call) {
               const audio::Sound given = sound_of(call.input());
               const int to = static_cast<int>(call.input("to").integer());
               // A low rate is a small input for a large result.
               if (given.seconds() * to * given.channels > static_cast<double>(kClientSamplesMax))
                 throw UsageError(fmt::format("at {} Hz the sound has more than {} samples; cut it into parts", to,
                                              kClientSamplesMax));
               return to_value(audio::resample(given, to));
             });
  constexpr const char* kSpectrum =
      R"({"type": "object", "required": ["real", "imaginary"], "properties": {"real": {"x-tensor": true}, "imaginary": {"x-tensor": true}}})";
  sounds.add("stft", Kind::query, "The short-time Fourier transform, [..., frames, size / 2 + 1].",
             signal + ", " + frames, R"("x")", kSpectrum, nullptr, [](Context& call) {
               const audio::Spectrum made =
                   audio::stft(call.input("x").tensor(), stft_options(without(call.input(), {"x"})));
               return Value::object({{"real", made.real}, {"imaginary", made.imaginary}});
             });
  sounds.add(
      "istft", Kind::query, "The signal whose transform is nearest to the spectrum, [..., length].",
      R"("real": {"x-tensor": true}, "imaginary": {"x-tensor": true}, "length": {"type": "integer", "minimum": 0, "default": 0, "description": "0: all samples of the frames"}, )" +
          frames,
      R"("real", "imaginary")", R"({"type": "object", "required": ["x"], "properties": {"x": {"x-tensor": true}}})",
      nullptr, [](Context& call) {
        const Value& in = call.input();
        return Value::object(
            {{"x", audio::istft({in["real"].tensor(), in["imaginary"].tensor()},
                                stft_options(without(in, {"real", "imaginary", "length"})), in["length"].integer())}});
      });
  constexpr const char* kFilters =
      R"({"type": "object", "required": ["filters"], "properties": {"filters": {"x-tensor": true}}})";
  sounds.add("mel_filters", Kind::query, "Triangles over the bins of a spectrum, [mels, size / 2 + 1].", R"(
               "mels": {"type": "integer", "minimum": 1, "maximum": 4096, "default": 80},
               "size": {"type": "integer", "minimum": 1, "maximum": 65536, "default": 400},
               "rate": {"type": "number", "exclusiveMinimum": 0, "default": 16000},
               "low": {"type": "number", "minimum": 0, "default": 0}, "high": {"type": "number", "minimum": 0, "default": 0, "description": "0: half the rate"},
               "scale": {"enum": ["slaney", "htk"], "default": "slaney"}, "normalized": {"type": "boolean", "default": true})",
             "", kFilters, nullptr, [](Context& call) {
               return Value::object({{"filters", audio::mel_filters(mel_options(call.input()))}});
             });
  sounds.add("log_mel_spectrogram", Kind::query,
             "The features that Whisper reads, of samples at 16 kHz: [..., mels, samples / 160].",
             signal + R"(, "mels": {"type": "integer", "minimum": 1, "maximum": 4096, "default": 80})", R"("x")",
             R"({"type": "object", "required": ["features"], "properties": {"features": {"x-tensor": true}}})", nullptr,
             [](Context& call) {
               return Value::object(
                   {{"features", audio::log_mel_spectrogram(call.input("x").tensor(), call.input("mels").integer())}});
             });
}

}  // namespace

void add_media_operations(Registry& registry, const CatalogueOptions& options) {
  add_image_operations(registry, options);
  add_audio_operations(registry, options);
}

}  // namespace weft::operations
