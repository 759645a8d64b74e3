#include "llm/image_reader.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "vision/images.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::llm::detail {
namespace {

using io::ConfigKeys;
using vision::TowerKind;

/// The first of the prefixes that some tensor of the files has with `probe` behind it; else the first.
std::string prefix_of(const io::TensorSource& files, std::initializer_list<const char*> prefixes,
                      std::string_view probe) {
  for (const char* prefix : prefixes)
    if (files.find(prefix + std::string(probe))) return prefix;
  return *prefixes.begin();
}

// Models have some hundreds. A prompt holds the marker once for each.
constexpr Extent kTileRowsMax = 1 << 12;
constexpr std::string_view kPatchProbe = "embeddings.patch_embedding.weight";

TowerKind llava_tower(const ConfigKeys& keys) {
  const std::string type = keys.text({"model_type"}, "clip_vision_model");
  if (type == "clip_vision_model") return TowerKind::clip;
  if (type == "siglip_vision_model") return TowerKind::siglip;
  keys.fail("model_type",
            fmt::format("is \"{}\"; Weft's LLaVA sees by clip_vision_model or siglip_vision_model", type));
}

}  // namespace

ImageReader::ImageReader(const std::filesystem::path& folder, const io::TensorSource& files,
                         const text::Tokenizer& tokenizer, Extent width, Device device)
    : processor_(vision::ImageProcessor::from_folder(folder)), device_(device) {
  const std::string source = (folder / "config.json").string();
  const Json config = vision::read_model_config(folder);
  const ConfigKeys keys(config, source);
  cuts_ = keys.text({"model_type"}) != "llava";
  vision::ModelWeights weights(files, device);
  if (cuts_)
    read_idefics3(config, source, weights, width);
  else
    read_llava(config, source, weights, width);
  weights.require_all();
  bytes_ = weights.bytes();
  side_ = processor_.side();
  if (side_ == 0 || processor_.cuts() != cuts_)
    throw FileError(
        fmt::format("{}: the settings of images do not make squares as the model reads them; do the files belong "
                    "to one model?",
                    folder.string()));
  const Extent grid = side_ / tower_->config().patch_size;
  if (cuts_ ? grid < 1 || grid % shuffle_ != 0 : side_ != tower_->config().image_size)
    throw FileError(
        fmt::format("{}: images of {} x {} pixels do not fit the model, which has image_size {}, patch_size {}{}",
                    source, side_, side_, tower_->config().image_size, tower_->config().patch_size,
                    cuts_ ? fmt::format(" and scale_factor {}", shuffle_) : ""));
  tile_rows_ = cuts_ ? grid * grid / (shuffle_ * shuffle_) : tower_->tokens() - (drops_class_token_ ? 1 : 0);
  if (tile_rows_ > kTileRowsMax)
    throw FileError(fmt::format("{}: {} rows for an image of {} x {} pixels; Weft reads at most {}", source, tile_rows_,
                                side_, side_, kTileRowsMax));
  const Extent marker = keys.size({"image_token_index", "image_token_id"}, cuts_ ? 128257 : 32000);
  marker_token_ = static_cast<text::TokenId>(marker);
  if (!tokenizer.piece(marker_token_))
    throw FileError(fmt::format("{}: the token {} of images is not in tokenizer.json", source, marker));
  marker_ = tokenizer.token_bytes(marker_token_);
  if (marker_.empty()) throw FileError(fmt::format("{}: the token {} of images has no text", source, marker));
  pass_ =
      std::make_unique<Compiled>([this](std::span<const Tensor> a) { return std::vector<Tensor>{connected(a[0])}; });
}

void ImageReader::read_llava(const Json& config, const std::string& source, vision::ModelWeights& weights,
                             Extent width) {
  const ConfigKeys keys(config, source);
  const Json& part = config.at("vision_config");
  const TowerKind kind = llava_tower(ConfigKeys(part, source, "vision_config"));
  vision::TowerConfig tower = vision::tower_config(kind, part, source, "vision_config");
  // Layers count from the end where they are negative: -1 is behind the last.
  std::vector<Extent> chosen;
  const Json* layers = keys.find({"vision_feature_layer"});
  for (const Json& each : !layers ? Json::array({-2}) : layers->is_array() ? *layers : Json::array({*layers})) {
    const Extent count = tower.stack.layers;
    const Extent layer = each.is_number_integer() ? each.get<Extent>() : count + 1;
    if (layer < -count - 1 || layer > count || chosen.size() > 64)
      keys.fail("vision_feature_layer", fmt::format("is {}; give up to 64 layers from {} to {}",
                                                    (layers ? *layers : each).dump(), -count - 1, count));
    chosen.push_back(layer < 0 ? count + 1 + layer : layer);
  }
  if (chosen.empty()) keys.fail("vision_feature_layer", "is empty");
  layers_ = chosen;
  tower.stack.layers = std::max<Extent>(*std::max_element(chosen.begin(), chosen.end()), 1);  // no others are loaded
  const std::string strategy = keys.text({"vision_feature_select_strategy"}, "default");
  if (strategy != "default" && strategy != "full")
    keys.fail("vision_feature_select_strategy", fmt::format("is \"{}\"; known are default and full", strategy));
  drops_class_token_ = strategy == "default";
  if (drops_class_token_ && !tower.has_class_token())
    keys.fail("vision_feature_select_strategy", "is \"default\", and the tower has no class token to leave out");
  if (const std::string name = keys.text({"projector_hidden_act"}, "gelu"); name != "gelu")
    keys.fail("projector_hidden_act", fmt::format("is \"{}\"; Weft has gelu", name));
  const bool has_bias = keys.flag("multimodal_projector_bias", true);
  const io::TensorSource& files = weights.source();
  tower_ = std::make_unique<vision::Tower>(tower, weights,
                                           prefix_of(files,
                                                     {"vision_tower.vision_model.", "vision_tower.",
                                                      "model.vision_tower.vision_model.", "model.vision_tower."},
                                                     kPatchProbe),
                                           false);
  const std::string projector =
      prefix_of(files, {"multi_modal_projector.", "model.multi_modal_projector."}, "linear_1.weight");
  const Extent seen = tower.stack.hidden * static_cast<Extent>(chosen.size());
  first_ = vision::linear_of(weights, projector + "linear_1", width, seen, has_bias);
  second_ = vision::linear_of(weights, projector + "linear_2", width, width, has_bias);
}

void ImageReader::read_idefics3(const Json& config, const std::string& source, vision::ModelWeights& weights,
                                Extent width) {
  const ConfigKeys keys(config, source);
  const vision::TowerConfig tower =
      vision::tower_config(TowerKind::idefics3, config.at("vision_config"), source, "vision_config");
  shuffle_ = keys.size({"scale_factor"}, 2);
  if (shuffle_ < 1 || shuffle_ > 16) keys.fail("scale_factor", fmt::format("is {}, not from 1 to 16", shuffle_));
  const io::TensorSource& files = weights.source();
  tower_ = std::make_unique<vision::Tower>(
      tower, weights, prefix_of(files, {"model.vision_model.", "vision_model."}, kPatchProbe), false);
  first_ = vision::linear_of(weights,
                             prefix_of(files, {"model.connector.", "connector."}, "modality_projection.proj.weight") +
                                 "modality_projection.proj",
                             width, tower.stack.hidden * shuffle_ * shuffle_, false);
}

Tensor ImageReader::connected(const Tensor& pixels) const {
  if (!cuts_) {
    std::vector<Tensor> seen;
    for (const Extent layer : layers_) {
      const Tensor states = tower_->states(pixels, layer);
      seen.push_back(drops_class_token_ ? narrow(states, 0, 1, states.dim(0) - 1) : states);
    }
    return second_(vision::activated(first_(seen.size() == 1 ? seen[0] : concat(seen, 1)), activation_));
  }
  // Squares of patches become one row each: the patches of a square side by side, row by row.
  const Tensor x = tower_->last_states(pixels);
  const Extent grid = side_ / tower_->config().patch_size, s = shuffle_, squares = grid / s, hidden = x.dim(1);
  const Tensor parts = permute(reshape(x, {squares, s, squares, s, hidden}), {0, 2, 1, 3, 4});
  return first_(reshape(parts, {squares * squares, s * s * hidden}));
}

vision::PreparedImage ImageReader::prepare(const Tensor& image) const {
  if (image.defined() && image.dtype() == DType::f32) {
    if (image.shape() != Shape{3, side_, side_})
      throw UsageError(fmt::format("llm: an image f32 {}; give u8 [height, width, 3], or f32 [3, {}, {}], normalised",
                                   image.shape().to_string(), side_, side_));
    vision::PreparedImage prepared;
    prepared.ready = image.to_vector<float>();
    return prepared;
  }
  return processor_.prepare(image::pixels_of(image, "llm"));
}

Extent ImageReader::rows_of(const vision::PreparedImage& image) const {
  return tile_rows_ * (image.ready.empty() ? static_cast<Extent>(image.tiles.size()) : 1);
}

std::string ImageReader::text_of(const vision::PreparedImage& image) const {
  std::string rows;
  for (Extent i = 0; i < tile_rows_; ++i) rows += marker_;
  if (!cuts_) return rows;
  constexpr const char *kAround = "<fake_token_around_image>", *kWhole = "<global-img>";
  std::string text;
  for (Extent y = 0; y < image.rows; ++y) {
    for (Extent x = 0; x < image.columns; ++x) text += fmt::format("{}<row_{}_col_{}>{}", kAround, y + 1, x + 1, rows);
    text += "\n";
  }
  if (image.rows > 0) text += "\n";
  return text + kAround + kWhole + rows + kAround;
}

std::vector<float> ImageReader::see(const vision::PreparedImage& image, std::size_t tile) {
  const std::vector<float> planes = image.ready.empty() ? processor_.normalized(image.tiles[tile]) : image.ready;
  const Tensor pixels = tensor_from_bytes(planes.data(), {3, side_, side_}, DType::f32, device_);
  return (*pass_)(std::span<const Tensor>(&pixels, 1))[0].to_vector<float>();
}

}  // namespace weft::llm::detail
