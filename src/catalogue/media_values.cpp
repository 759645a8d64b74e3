#include "catalogue/media_values.hpp"

#include <span>

#include "schema/value_options.hpp"
#include "weft/image.hpp"

namespace weft::operations {

audio::StftOptions stft_options(const Value& options) {
  audio::StftOptions o;
  std::string window = "hann";
  ValueOptions given(options, "stft");
  given.read("size", o.size)
      .read("hop", o.hop)
      .read("window_size", o.window_size)
      .read("window", window)
      .read("centred", o.centred)
      .finish();
  o.window = audio::window_kind(window);
  return o;
}

audio::MelOptions mel_options(const Value& options) {
  audio::MelOptions o;
  std::string scale = "slaney";
  ValueOptions given(options, "mel_filters");
  given.read("mels", o.mels)
      .read("size", o.size)
      .read("rate", o.rate)
      .read("low", o.low)
      .read("high", o.high)
      .read("scale", scale)
      .read("normalized", o.normalized)
      .finish();
  o.scale = audio::mel_scale(scale);
  return o;
}

memory::SearchOptions memory_search_options(const Value& options, std::size_t top_k) {
  memory::SearchOptions o{.top_k = top_k};
  ValueOptions given(options, "search");
  given.read("top_k", o.top_k)
      .read("namespace", o.name_space)
      .read("where", o.where)
      .read("similarity_min", o.similarity_min)
      .finish();
  return o;
}

std::vector<std::byte> bytes_of(const Tensor& tensor, std::string_view what) {
  if (tensor.dtype() != DType::u8 || tensor.rank() != 1)
    throw UsageError(fmt::format("{} is {} {}; give its bytes as u8 [bytes]", what, name_of(tensor.dtype()),
                                 tensor.shape().to_string()));
  const std::vector<std::uint8_t> values = tensor.to_vector<std::uint8_t>();
  const auto all = std::as_bytes(std::span(values));
  return {all.begin(), all.end()};
}
Tensor tensor_of_bytes(std::span<const std::byte> bytes) {
  return tensor_from_bytes(bytes.data(), {static_cast<Extent>(bytes.size())}, DType::u8, kCpu);
}

Tensor image_of(const Tensor& given) { return given.rank() == 1 ? image::decode(bytes_of(given, "the image")) : given; }

audio::Sound sound_of(const Value& input) {
  const Tensor& given = input["sound"].tensor();
  if (given.dtype() == DType::u8)
    return audio::parse(bytes_of(given, "the sound"), "the sound", {.samples_max = kClientSamplesMax});
  const Value* const rate = input.find("rate");
  if (!rate || rate->is_null()) throw UsageError("the sound has samples without a rate; give the rate, or a file");
  return audio::from_tensor(given, static_cast<int>(rate->integer()));
}
audio::Sound heard_sound_of(const Value& input) {
  audio::Sound sound = sound_of(input);
  if (sound.seconds() > kClientSecondsMax)
    throw UsageError(fmt::format("the sound has {:.0f} s; at most {:.0f} are heard at once, so cut it into parts",
                                 sound.seconds(), kClientSecondsMax));
  return sound;
}
Value to_value(const audio::Sound& sound) {
  return Value::object({{"sound", audio::to_tensor(sound, kCpu)}, {"rate", sound.rate}});
}

Value without(const Value& input, std::initializer_list<std::string_view> names) {
  Value::Object rest = input.members();
  for (const std::string_view name : names) rest.remove(name);
  return rest;
}

Value to_value(const vision::Label& label) {
  return Value::object({{"index", label.index}, {"name", label.name}, {"probability", label.probability}});
}

}  // namespace weft::operations
