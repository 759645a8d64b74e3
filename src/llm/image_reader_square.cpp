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
  Extent tile_rows(const vision::PreparedImage&) const override { return tile_rows_ + (newline_.empty() ? 0 : 1); }
  Extent rows_of(const vision::PreparedImage& image) const override;
  RowPlace place_of(const vision::PreparedImage& image, Extent row) const override;
  std::string text_of(const vision::PreparedImage& image) const override;
  RowGrid shape_of(const vision::PreparedImage&) const override { return {side_, side_}; }
  std::vector<std::vector<float>> see(std::span<const Tile> tiles) override;

 private:
  enum class Kind : std::uint8_t {
    llava,
    llava_next,  // the whole image, then the rows of all parts line by line, with a row behind each line
    internvl,    // as Idefics3, with a projector of two layers
    idefics3,    // several tiles of an image, each with fewer rows than patches
    gemma3,      // patches of squares become one row by their mean; crops beside the whole image
  };
  Tensor connected(const Tensor& pixels) const;
  void read_llava(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width);
  void read_idefics3(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width);
  void read_gemma3(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width, bool norm_lacks_one);
  void read_internvl(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width);
  bool is_llava() const { return kind_ == Kind::llava || kind_ == Kind::llava_next; }
  /// LLaVA-NeXT: the lines and columns of an image's patches without what is black.
  struct Lines {
    Extent first, count, first_column, columns;
  };
  Lines lines_of(const vision::PreparedImage& image) const;
  void check_side(const ImageReaderInput& input, const std::string& source);

  vision::ImageProcessor processor_;
  Kind kind_;
  std::unique_ptr<vision::Tower> tower_;
  std::vector<Extent> layers_;      // LLaVA: numbers of layers after which states are taken
  bool drops_class_token_ = false;  // LLaVA
  std::vector<float> newline_;      // LLaVA-NeXT: the row behind each line, kept behind the rows of each tile
  Extent shuffle_ = 1;              // others: patches on a side of the square that becomes a row
  vision::Norm row_norm_;           // InternVL
  vision::Linear first_, second_;
  Tensor norm_, projection_;  // Gemma 3: of the means, and [hidden of the tower, width]
  double norm_eps_ = 1e-6;
  std::string around_first_, around_last_;  // Gemma 3, InternVL: the tokens at an image
  Extent side_ = 0, tile_rows_ = 0;
  Device device_;
  std::unique_ptr<Compiled> pass_;
};

SquareReader::SquareReader(const ImageReaderInput& input) : processor_(input.files.processor), device_(input.device) {
  const std::string& source = input.files.source;
  const ConfigKeys keys(input.files.config, source);
  const std::string type = keys.text({"model_type"});
  kind_ = type == "llava"        ? Kind::llava
          : type == "llava_next" ? Kind::llava_next
          : type == "internvl"   ? Kind::internvl
          : type == "gemma3"     ? Kind::gemma3
                                 : Kind::idefics3;
  vision::ModelWeights weights(input.files.tensors, device_, input.files.shown, input.is_planned);
  if (is_llava())
    read_llava(keys, weights, input.hidden);
  else if (kind_ == Kind::internvl)
    read_internvl(keys, weights, input.hidden);
  else if (kind_ == Kind::gemma3)
    read_gemma3(keys, weights, input.hidden, input.files.norms_lack_one);
  else
    read_idefics3(keys, weights, input.hidden);
  weights.require_all();
  bytes_ = weights.bytes();
  side_ = processor_.side();
  check_side(input, source);
  const Extent grid = side_ / tower_->config().patch_size;
  tile_rows_ = is_llava() ? tower_->tokens() - (drops_class_token_ ? 1 : 0) : grid / shuffle_ * (grid / shuffle_);
  if (kind_ == Kind::llava_next && tile_rows_ != grid * grid)
    keys.fail("vision_feature_select_strategy", "is \"full\", and the class token has no place in lines of rows");
  if (tile_rows_ > kTileRowsMax)
    throw FileError(fmt::format("{}: {} rows for an image of {} x {} pixels; Weft reads at most {}", source, tile_rows_,
                                side_, side_, kTileRowsMax));
  const Extent usual = is_llava() ? 32000 : kind_ == Kind::internvl ? 151667 : kind_ == Kind::gemma3 ? 262144 : 128257;
  row_token_ = token_of(keys, {"image_token_index", "image_token_id"}, usual, input.tokenizer);
  row_text_ = marker_ = text_of_token(row_token_, input.tokenizer, source);
  if (kind_ == Kind::gemma3) {
    const auto text = [&](std::initializer_list<const char*> names, Extent fallback) {
      return text_of_token(token_of(keys, names, fallback, input.tokenizer), input.tokenizer, source);
    };
    around_first_ = marker_ = text({"boi_token_index", "boi_token_id"}, 255999);
    around_last_ = text({"eoi_token_index", "eoi_token_id"}, 256000);
  }
  if (kind_ == Kind::internvl) {
    around_first_ = "<img>";
    around_last_ = "</img>";
    for (const std::string& each : {around_first_, around_last_})
      if (input.tokenizer.id_of(each) == text::kNoToken)
        throw FileError(fmt::format("{}: the token {} is not in tokenizer.json", source, each));
  }
  pass_ =
      std::make_unique<Compiled>([this](std::span<const Tensor> a) { return std::vector<Tensor>{connected(a[0])}; });
}

void SquareReader::check_side(const ImageReaderInput& input, const std::string& source) {
  using Cut = vision::ImageProcessor::Cut;
  const Cut cut = kind_ == Kind::idefics3     ? Cut::whole_behind
                  : kind_ == Kind::llava_next ? Cut::padded
                  : kind_ == Kind::internvl   ? Cut::nearest_shape
                                              : Cut::none;
  if (side_ == 0 || processor_.cut() != cut)
    throw FileError(
        fmt::format("{}: the settings of images do not make squares as the model reads them; do the files belong "
                    "to one model?",
                    input.files.place));
  const Extent grid = side_ / tower_->config().patch_size;
  const bool fits =
      grid >= 1 && grid % shuffle_ == 0 && (kind_ == Kind::idefics3 || side_ == tower_->config().image_size);
  if (!fits)
    throw FileError(
        fmt::format("{}: images of {} x {} pixels do not fit the model, which has image_size {}, patch_size {}{}",
                    source, side_, side_, tower_->config().image_size, tower_->config().patch_size,
                    kind_ == Kind::idefics3 ? fmt::format(" and scale_factor {}", shuffle_) : ""));
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
  if (kind_ != Kind::llava_next) return;
  const Tensor newline = weights.dense(prefix_of(files, {"", "model."}, "image_newline") + "image_newline", {width});
  newline_ = newline.defined() ? newline.to_vector<float>() : std::vector<float>(1);
  // Both files say them; rows could not be placed if they did not agree.
  const Json* sizes = keys.find({"image_grid_pinpoints"});
  if (sizes && processor_.cut() == vision::ImageProcessor::Cut::padded && *sizes != Json(processor_.sizes()))
    keys.fail("image_grid_pinpoints",
              fmt::format("is {}, and the settings of images have {}; do the files belong to one model?", sizes->dump(),
                          Json(processor_.sizes()).dump()));
}

void SquareReader::read_internvl(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width) {
  const vision::TowerConfig tower =
      vision::tower_config(TowerKind::internvl, keys.json().at("vision_config"), keys.source(), "vision_config");
  const double ratio = keys.number({"downsample_ratio"}, 0.5);
  shuffle_ = ratio > 0.05 ? static_cast<Extent>(std::round(1 / ratio)) : 0;
  if (shuffle_ < 1 || std::abs(ratio * static_cast<double>(shuffle_) - 1) > 1e-9 || tower.grid() % shuffle_ != 0)
    keys.fail("downsample_ratio",
              fmt::format("is {}, not 1 through a number that divides the {} patches of a side", ratio, tower.grid()));
  if (const Json* layer = keys.find({"vision_feature_layer"}); layer && *layer != -1)
    keys.fail("vision_feature_layer", fmt::format("is {}; Weft's InternVL takes the last layer, -1", layer->dump()));
  if (keys.text({"vision_feature_select_strategy"}, "default") != "default")
    keys.fail("vision_feature_select_strategy",
              "is not \"default\", and the class token has no place in squares of patches");
  require_gelu(keys);
  const io::TensorSource& files = weights.source();
  tower_ = std::make_unique<vision::Tower>(
      tower, weights, prefix_of(files, {"vision_tower.", "model.vision_tower."}, "embeddings.cls_token"), false);
  const std::string projector =
      prefix_of(files, {"multi_modal_projector.", "model.multi_modal_projector."}, "linear_1.weight");
  const Extent row = tower.stack.hidden * shuffle_ * shuffle_;
  row_norm_ = vision::norm_of(weights, projector + "layer_norm", row, 1e-5);
  first_ = vision::linear_of(weights, projector + "linear_1", width, row);
  second_ = vision::linear_of(weights, projector + "linear_2", width, width);
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
  if (is_llava()) {
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
  const Extent grid = side_ / tower_->config().patch_size, s = shuffle_, squares = grid / s;
  Tensor x = tower_->last_states(pixels);
  const Extent hidden = x.dim(1);
  if (kind_ == Kind::internvl) x = narrow(reshape(x, {n, 1 + grid * grid, hidden}), 1, 1, grid * grid);
  const Tensor parts = reshape(x, {n * squares, s, squares, s, hidden});
  if (kind_ == Kind::gemma3) {
    const Tensor means = reshape(mean(parts, {1, 3}), {n * squares * squares, hidden});
    return matmul(rms_norm(means, norm_, norm_eps_), projection_);
  }
  // Squares of patches become one row each: the patches of a square side by side, row by row.
  const Tensor rows = reshape(permute(parts, {0, 2, 1, 3, 4}), {n * squares * squares, s * s * hidden});
  if (kind_ == Kind::internvl) return second_(vision::activated(first_(row_norm_(rows)), vision::Activation::gelu));
  return first_(rows);
}

SquareReader::Lines SquareReader::lines_of(const vision::PreparedImage& image) const {
  const Extent grid = side_ / tower_->config().patch_size, height = image.rows * grid, width = image.columns * grid;
  const auto of = [](Extent value) { return static_cast<double>(value); };
  // What a side becomes in whole patches, as a float that is a hair too small for a whole number would have it.
  const auto scaled = [&](Extent side, Extent to, Extent from) {
    return static_cast<Extent>(std::floor(of(side) * (of(to) / of(from)) + 5e-8));
  };
  if (of(image.width) / of(image.height) > of(width) / of(height)) {
    const Extent black = (height - scaled(image.height, width, image.width)) / 2;
    return {black, height - 2 * black, 0, width};
  }
  const Extent black = (width - scaled(image.width, height, image.height)) / 2;
  return {0, height, black, width - 2 * black};
}

Extent SquareReader::rows_of(const vision::PreparedImage& image) const {
  if (kind_ != Kind::llava_next || image.rows == 0) return ImageReader::rows_of(image);
  const Lines lines = lines_of(image);
  return tile_rows_ + lines.count * (lines.columns + 1);
}

ImageReader::RowPlace SquareReader::place_of(const vision::PreparedImage& image, Extent row) const {
  if (kind_ != Kind::llava_next || image.rows == 0) return ImageReader::place_of(image, row);
  if (row < tile_rows_) return {0, row};
  const Extent grid = side_ / tower_->config().patch_size;
  const Lines lines = lines_of(image);
  const Extent behind = row - tile_rows_, x = behind % (lines.columns + 1);
  if (x == lines.columns) return {0, tile_rows_};
  const Extent line = lines.first + behind / (lines.columns + 1), column = lines.first_column + x;
  return {1 + line / grid * image.columns + column / grid, line % grid * grid + column % grid};
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
  for (Extent i = 0; i < (kind_ == Kind::idefics3 || kind_ == Kind::gemma3 ? tile_rows_ : rows_of(image)); ++i)
    rows += row_text_;
  if (is_llava()) return rows;
  if (kind_ == Kind::internvl) return around_first_ + rows + around_last_;
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
  for (std::vector<float>& tile : rows) tile.insert(tile.end(), newline_.begin(), newline_.end());
  return rows;
}

}  // namespace

std::unique_ptr<ImageReader> square_reader(const ImageReaderInput& input) {
  return std::make_unique<SquareReader>(input);
}

}  // namespace weft::llm::detail
