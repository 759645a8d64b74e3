// Readers of images that are squares of one size: a tower over each square, and a connector that makes rows of its patches.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "llm/image_reader_parts.hpp"
#include "vision/images.hpp"
#include "vision/tower.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::llm::detail {
namespace {

using io::ConfigKeys;
using vision::TowerKind;

constexpr std::string_view kPatchProbe = "embeddings.patch_embedding.weight";

TowerKind llava_tower(const ConfigKeys& keys) {
  const std::string type = keys.text({"model_type"}, "clip_vision_model");
  if (type == "clip_vision_model") return TowerKind::clip;
  if (type == "siglip_vision_model") return TowerKind::siglip;
  keys.fail("model_type",
            fmt::format("is \"{}\"; Weft's LLaVA sees by clip_vision_model, siglip_vision_model or pixtral", type));
}

class SquareReader : public ImageReader {
 public:
  explicit SquareReader(const ImageReaderInput& input);

  vision::PreparedImage prepare(const Tensor& image) const override;
  Extent tile_rows(const vision::PreparedImage&) const override { return tile_rows_; }
  std::string text_of(const vision::PreparedImage& image) const override;
  RowGrid shape_of(const vision::PreparedImage&) const override { return {side_, side_}; }
  std::vector<std::vector<float>> see(std::span<const Tile> tiles) override;

 private:
  enum class Kind : std::uint8_t {
    llava,
    idefics3,  // several tiles of an image, each with fewer rows than patches
    gemma3,    // patches of squares become one row by their mean; crops beside the whole image
  };
  Tensor connected(const Tensor& pixels) const;
  void read_llava(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width);
  void read_idefics3(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width);
  void read_gemma3(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width, bool norm_lacks_one);
  void check_side(const ImageReaderInput& input, const std::string& source);

  vision::ImageProcessor processor_;
  Kind kind_;
  std::unique_ptr<vision::Tower> tower_;
  std::vector<Extent> layers_;      // LLaVA: numbers of layers after which states are taken
  bool drops_class_token_ = false;  // LLaVA
  Extent shuffle_ = 1;              // Idefics3, Gemma 3: patches on a side of the square that becomes a row
  vision::Linear first_, second_;
  Tensor norm_, projection_;  // Gemma 3: of the means, and [hidden of the tower, width]
  double norm_eps_ = 1e-6;
  std::string around_first_, around_last_;  // Gemma 3: the tokens at an image
  Extent side_ = 0, tile_rows_ = 0;
  Device device_;
  std::unique_ptr<Compiled> pass_;
};

SquareReader::SquareReader(const ImageReaderInput& input) : processor_(input.files.processor), device_(input.device) {
  const std::string& source = input.files.source;
  const ConfigKeys keys(input.files.config, source);
  const std::string type = keys.text({"model_type"});
  kind_ = type == "llava" ? Kind::llava : type == "gemma3" ? Kind::gemma3 : Kind::idefics3;
  vision::ModelWeights weights(input.files.tensors, device_, input.files.shown);
  if (kind_ == Kind::llava)
    read_llava(keys, weights, input.hidden);
  else if (kind_ == Kind::gemma3)
    read_gemma3(keys, weights, input.hidden, input.files.norms_lack_one);
  else
    read_idefics3(keys, weights, input.hidden);
  weights.require_all();
  bytes_ = weights.bytes();
  side_ = processor_.side();
  check_side(input, source);
  const Extent grid = side_ / tower_->config().patch_size;
  tile_rows_ =
      kind_ == Kind::llava ? tower_->tokens() - (drops_class_token_ ? 1 : 0) : grid / shuffle_ * (grid / shuffle_);
  if (tile_rows_ > kTileRowsMax)
    throw FileError(fmt::format("{}: {} rows for an image of {} x {} pixels; Weft reads at most {}", source, tile_rows_,
                                side_, side_, kTileRowsMax));
  const Extent usual = kind_ == Kind::llava ? 32000 : kind_ == Kind::gemma3 ? 262144 : 128257;
  row_token_ = token_of(keys, {"image_token_index", "image_token_id"}, usual, input.tokenizer);
  row_text_ = marker_ = text_of_token(row_token_, input.tokenizer, source);
  if (kind_ == Kind::gemma3) {
    const auto text = [&](std::initializer_list<const char*> names, Extent fallback) {
      return text_of_token(token_of(keys, names, fallback, input.tokenizer), input.tokenizer, source);
    };
    around_first_ = marker_ = text({"boi_token_index", "boi_token_id"}, 255999);
    around_last_ = text({"eoi_token_index", "eoi_token_id"}, 256000);
  }
  pass_ =
      std::make_unique<Compiled>([this](std::span<const Tensor> a) { return std::vector<Tensor>{connected(a[0])}; });
}

void SquareReader::check_side(const ImageReaderInput& input, const std::string& source) {
  const bool cuts = kind_ == Kind::idefics3;
  if (side_ == 0 || processor_.cuts() != cuts)
    throw FileError(
        fmt::format("{}: the settings of images do not make squares as the model reads them; do the files belong "
                    "to one model?",
                    input.files.place));
  const Extent grid = side_ / tower_->config().patch_size;
  const bool fits = cuts ? grid >= 1 && grid % shuffle_ == 0 : side_ == tower_->config().image_size;
  if (!fits)
    throw FileError(
        fmt::format("{}: images of {} x {} pixels do not fit the model, which has image_size {}, patch_size {}{}",
                    source, side_, side_, tower_->config().image_size, tower_->config().patch_size,
                    cuts ? fmt::format(" and scale_factor {}", shuffle_) : ""));
}

void SquareReader::read_llava(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width) {
  const Json& part = keys.json().at("vision_config");
  const TowerKind kind = llava_tower(ConfigKeys(part, keys.source(), "vision_config"));
  vision::TowerConfig tower = vision::tower_config(kind, part, keys.source(), "vision_config");
  layers_ = feature_layers(keys, -2, tower.stack.layers);
  tower.stack.layers = std::max<Extent>(*std::max_element(layers_.begin(), layers_.end()), 1);  // no others are loaded
  const std::string strategy = keys.text({"vision_feature_select_strategy"}, "default");
  if (strategy != "default" && strategy != "full")
    keys.fail("vision_feature_select_strategy", fmt::format("is \"{}\"; known are default and full", strategy));
  drops_class_token_ = strategy == "default";
  if (drops_class_token_ && !tower.has_class_token())
    keys.fail("vision_feature_select_strategy", "is \"default\", and the tower has no class token to leave out");
  require_gelu(keys);
  const bool has_bias = keys.flag("multimodal_projector_bias", true);
  const io::TensorSource& files = weights.source();
  tower_ = std::make_unique<vision::Tower>(tower, weights,
                                           prefix_of(files,
                                                     {"vision_tower.vision_model.", "vision_tower.",
                                                      "model.vision_tower.vision_model.", "model.vision_tower."},
                                                     kPatchProbe),
                                           false, false);
  const std::string projector =
      prefix_of(files, {"multi_modal_projector.", "model.multi_modal_projector."}, "linear_1.weight");
  const Extent seen = tower.stack.hidden * static_cast<Extent>(layers_.size());
  first_ = vision::linear_of(weights, projector + "linear_1", width, seen, has_bias);
  second_ = vision::linear_of(weights, projector + "linear_2", width, width, has_bias);
}

void SquareReader::read_idefics3(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width) {
  const vision::TowerConfig tower =
      vision::tower_config(TowerKind::idefics3, keys.json().at("vision_config"), keys.source(), "vision_config");
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

void SquareReader::read_gemma3(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width,
                               bool norm_lacks_one) {
  const vision::TowerConfig tower =
      vision::tower_config(TowerKind::siglip, keys.json().at("vision_config"), keys.source(), "vision_config");
  const Extent rows = keys.size({"mm_tokens_per_image"}, 256);
  const auto side = static_cast<Extent>(std::sqrt(static_cast<double>(rows)));
  if (side < 1 || side * side != rows || tower.grid() % side != 0)
    keys.fail(
        "mm_tokens_per_image",
        fmt::format("is {}, not the square of a number that divides the {} patches of a side", rows, tower.grid()));
  shuffle_ = tower.grid() / side;
  const io::TensorSource& files = weights.source();
  tower_ = std::make_unique<vision::Tower>(tower, weights,
                                           prefix_of(files,
                                                     {"vision_tower.vision_model.", "model.vision_tower.vision_model.",
                                                      "model.vision_tower.", "vision_tower."},
                                                     kPatchProbe),
                                           false);
  const std::string projector =
      prefix_of(files, {"multi_modal_projector.", "model.multi_modal_projector."}, "mm_soft_emb_norm.weight");
  norm_ = weights.dense(projector + "mm_soft_emb_norm.weight", {tower.stack.hidden});
  if (norm_lacks_one && norm_.defined()) norm_ = (norm_ + 1.0).eval();
  norm_eps_ = tower.stack.norm_eps;
  projection_ = weights.dense(projector + "mm_input_projection_weight", {tower.stack.hidden, width});
}

Tensor SquareReader::connected(const Tensor& pixels) const {
  const Extent n = pixels.dim(0);
  if (kind_ == Kind::llava) {
    std::vector<Tensor> seen;
    for (const Extent layer : layers_) {
      const Tensor states = tower_->states(pixels, layer);
      const Extent tokens = states.dim(0) / n, width = states.dim(1);
      seen.push_back(drops_class_token_ ? reshape(narrow(reshape(states, {n, tokens, width}), 1, 1, tokens - 1),
                                                  {n * (tokens - 1), width})
                                        : states);
    }
    return second_(vision::activated(first_(seen.size() == 1 ? seen[0] : concat(seen, 1)), vision::Activation::gelu));
  }
  const Tensor x = tower_->last_states(pixels);
  const Extent grid = side_ / tower_->config().patch_size, s = shuffle_, squares = grid / s, hidden = x.dim(1);
  const Tensor parts = reshape(x, {n * squares, s, squares, s, hidden});
  if (kind_ == Kind::gemma3) {
    const Tensor means = reshape(mean(parts, {1, 3}), {n * squares * squares, hidden});
    return matmul(rms_norm(means, norm_, norm_eps_), projection_);
  }
  // Squares of patches become one row each: the patches of a square side by side, row by row.
  return first_(reshape(permute(parts, {0, 2, 1, 3, 4}), {n * squares * squares, s * s * hidden}));
}

vision::PreparedImage SquareReader::prepare(const Tensor& image) const {
  if (image.defined() && image.dtype() == DType::f32) {
    if (image.shape() != Shape{3, side_, side_})
      throw UsageError(fmt::format("llm: an image f32 {}; give u8 [height, width, 3], or f32 [3, {}, {}], normalised",
                                   image.shape().to_string(), side_, side_));
    vision::PreparedImage prepared;
    prepared.ready = image.to_vector<float>();
    prepared.ready_height = prepared.ready_width = side_;
    return prepared;
  }
  return processor_.prepare(image::pixels_of(image, "llm"));
}

std::string SquareReader::text_of(const vision::PreparedImage& image) const {
  std::string rows;
  for (Extent i = 0; i < tile_rows_; ++i) rows += row_text_;
  if (kind_ == Kind::llava) return rows;
  if (kind_ == Kind::gemma3) {
    const std::string one = "\n\n" + around_first_ + rows + around_last_ + "\n\n";
    if (image.tiles.size() < 2) return one;
    std::string text = "Here is the original image " + one + " and here are some crops to help you see better";
    for (std::size_t i = 1; i < image.tiles.size(); ++i) text += " " + one;
    return text;
  }
  constexpr const char *kAround = "<fake_token_around_image>", *kWhole = "<global-img>";
  std::string text;
  for (Extent y = 0; y < image.rows; ++y) {
    for (Extent x = 0; x < image.columns; ++x) text += fmt::format("{}<row_{}_col_{}>{}", kAround, y + 1, x + 1, rows);
    text += "\n";
  }
  if (image.rows > 0) text += "\n";
  return text + kAround + kWhole + rows + kAround;
}

std::vector<std::vector<float>> SquareReader::see(std::span<const Tile> tiles) {
  std::vector<std::vector<float>> rows;
  for (const std::size_t size : vision::pass_sizes(tiles.size(), tower_->tokens())) {
    std::vector<float> planes;
    for (const Tile& tile : tiles.first(size)) {
      const vision::PreparedImage& image = *tile.image;
      const std::vector<float> own = image.ready.empty() ? processor_.normalized(image.tiles[tile.index]) : image.ready;
      planes.insert(planes.end(), own.begin(), own.end());
    }
    const Tensor pixels =
        tensor_from_bytes(planes.data(), {static_cast<Extent>(size), 3, side_, side_}, DType::f32, device_);
    append_parts(rows, (*pass_)(std::span<const Tensor>(&pixels, 1))[0].to_vector<float>(), size);
    tiles = tiles.subspan(size);
  }
  return rows;
}

}  // namespace

std::unique_ptr<ImageReader> square_reader(const ImageReaderInput& input) {
  return std::make_unique<SquareReader>(input);
}

}  // namespace weft::llm::detail
