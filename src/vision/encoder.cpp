// Embeddings of images and texts: CLIP and SigLIP.
#include <fmt/format.h>

#include <cmath>

#include "layers/rows.hpp"
#include "text/chat_template.hpp"
#include "text/tokenizer.hpp"
#include "vision/images.hpp"
#include "vision/text_tower.hpp"
#include "vision/tower.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/vision.hpp"

namespace weft::vision {
namespace detail {

struct EncoderState {
  Device device;
  std::string source;
  Json json;
  bool is_siglip;
  Extent width;
  io::TensorSource files;
  ModelWeights weights;
  ImageProcessor processor;
  text::Tokenizer tokenizer;
  Tower tower;
  TextTower texts;
  Linear projection;  // of images; SigLIP has none
  double scale = 1, bias = 0;
  Compiled image_pass, text_pass;

  EncoderState(const std::filesystem::path& folder, Device on)
      : device(on),
        source((folder / "config.json").string()),
        json(read_model_config(folder)),
        is_siglip(type() == "siglip"),
        width(shared_width()),
        files(io::TensorSource::open(folder)),
        weights(files, on),
        processor(ImageProcessor::from_folder(folder)),
        tokenizer(text::Tokenizer::from_json_file(tokenizer_file(folder))),
        tower(tower_config(is_siglip ? TowerKind::siglip : TowerKind::clip, part("vision_config"), source,
                           "vision_config"),
              weights, "vision_model.", true),
        texts(text_settings(folder), weights, width),
        image_pass([this](std::span<const Tensor> a) {
          const Tensor pooled = tower.pooled(a[0]);
          return std::vector<Tensor>{is_siglip ? pooled : projection(pooled)};
        }),
        text_pass([this](std::span<const Tensor> a) { return std::vector<Tensor>{texts.embedded(a[0], a[1])}; }) {
    if (!is_siglip)
      projection = linear_of(weights, "visual_projection", width, tower.config().stack.hidden, false);
    else if (tower.config().stack.hidden != width)
      throw FileError(fmt::format("{}: images have a width of {}, and texts of {}; they cannot be compared", source,
                                  tower.config().stack.hidden, width));
    const Shape one = is_siglip ? Shape{1} : Shape{};
    const Tensor log_scale = weights.dense("logit_scale", one),
                 offset = is_siglip ? weights.dense("logit_bias", one) : Tensor();
    weights.require_all();
    scale = std::exp(double{log_scale.to_vector<float>()[0]});
    if (is_siglip) bias = double{offset.to_vector<float>()[0]};
  }

  std::string type() const {
    std::string type = io::ConfigKeys(json, source).text({"model_type"});
    if (type == "clip" || type == "siglip") return type;
    throw FileError(
        fmt::format("{}: model_type is \"{}\"; vision::Encoder reads clip and siglip", source, type.substr(0, 64)));
  }
  /// An object of the configuration; where it is missing, all keys have their defaults.
  Json part(const char* name) const {
    const auto found = json.find(name);
    return found == json.end() || found->is_null() ? Json::object() : *found;
  }
  /// Texts of SigLIP are filled up with the tokenizer's padding; only where its files name none, the configuration's counts.
  TextConfig text_settings(const std::filesystem::path& folder) const {
    TextConfig config = text_config(is_siglip, part("text_config"), source, "text_config");
    const auto tokens = text::ChatTemplate::tokens_of(folder);
    if (const auto padding = tokens.find("pad_token"); padding != tokens.end() && padding->is_string())
      if (const text::TokenId id = tokenizer.id_of(padding->get<std::string>()); id >= 0 && id < config.vocabulary)
        config.padding_token = id;
    return config;
  }
  Extent shared_width() const {
    const io::ConfigKeys keys(json, source);
    if (!is_siglip) {
      const Extent size = keys.size({"projection_dim"}, 512);
      if (size < 1 || size > 1 << 16)
        keys.fail("projection_dim", fmt::format("is {}, not from 1 to {}", size, 1 << 16));
      return size;
    }
    const Json texts_json = part("text_config");
    const io::ConfigKeys text_keys(texts_json, source, "text_config");
    return text_keys.size({"projection_size"}, text_keys.size({"hidden_size"}, 768));
  }
};

}  // namespace detail

namespace {

Tensor rows_tensor(std::vector<float> values, Extent width, bool normalize) {
  const auto columns = static_cast<std::size_t>(width);
  if (normalize) layers::normalize_rows(values, columns);
  return tensor_from_bytes(values.data(), {static_cast<Extent>(values.size() / columns), width}, DType::f32, kCpu);
}

void append(std::vector<float>& all, const Tensor& row) {
  const std::vector<float> values = row.to_vector<float>();
  all.insert(all.end(), values.begin(), values.end());
}

}  // namespace

Encoder Encoder::load(const std::filesystem::path& folder, Device device) {
  try {
    return Encoder(std::make_shared<detail::EncoderState>(folder, device));
  } catch (Error& error) {
    error.add_context("loading the vision model " + folder.string());
    throw;
  }
}

Tensor Encoder::embed_images(std::span<const Tensor> images, const EncoderOptions& options) const {
  if (images.empty()) throw UsageError("vision: there are no images; give at least one");
  std::vector<float> rows =
      in_passes(images, state_->processor, state_->tower.config().image_size, state_->tower.tokens(), state_->device,
                [&](const Tensor& pixels) { return state_->image_pass(std::span<const Tensor>(&pixels, 1))[0]; });
  return rows_tensor(std::move(rows), state_->width, options.normalize);
}

Tensor Encoder::embed_texts(std::span<const std::string> texts, const EncoderOptions& options) const {
  if (texts.empty()) throw UsageError("vision: there are no texts; give at least one");
  std::vector<float> rows;
  for (const std::string& text : texts) {
    // Text of others is plain: it cannot end early.
    const TextTower::Padded padded = state_->texts.padded(state_->tokenizer.encode(text, {.parse_special = false}));
    const Tensor arguments[] = {tensor_from_bytes(padded.tokens.data(), {static_cast<Extent>(padded.tokens.size())},
                                                  DType::i32, state_->device),
                                tensor_from_bytes(&padded.place, {1}, DType::i32, state_->device)};
    append(rows, state_->text_pass(arguments)[0]);
  }
  return rows_tensor(std::move(rows), state_->width, options.normalize);
}

Tensor Encoder::scores(const Tensor& images, const Tensor& texts) const {
  for (const Tensor& rows : {images, texts})
    if (!rows.defined() || rows.rank() != 2 || rows.dim(1) != state_->width)
      throw ShapeError(fmt::format("vision: rows of shape {}; the model's have a width of {}",
                                   rows.defined() ? rows.shape().to_string() : "nothing", state_->width));
  const auto unit = [](const Tensor& x) { return x / norm(x, -1, {.keepdims = true}); };
  return matmul(unit(images), transpose(unit(texts))) * state_->scale + state_->bias;
}

Tensor Encoder::probabilities(const Tensor& images, const Tensor& texts) const {
  const Tensor all = scores(images, texts);
  return state_->is_siglip ? elementwise("sigmoid", {all}) : softmax(all, 1);
}

Extent Encoder::width() const { return state_->width; }

std::string Encoder::describe() const {
  const TowerConfig& v = state_->tower.config();
  const TextConfig& t = state_->texts.config();
  return fmt::format(
      "{}: images of {} x {} in patches of {}, {} layers of width {}; texts of {} tokens, {} layers of width {}; "
      "embeddings of {}; {:.1f} MB of weights on {}",
      state_->is_siglip ? "siglip" : "clip", v.image_size, v.image_size, v.patch_size, v.stack.layers, v.stack.hidden,
      t.context, t.stack.layers, t.stack.hidden, state_->width, static_cast<double>(state_->weights.bytes()) / 1e6,
      state_->device.to_string());
}

}  // namespace weft::vision
