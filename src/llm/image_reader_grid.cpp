// Readers of images that keep their proportions: Qwen2-VL, Qwen2.5-VL, Qwen3-VL, and the models with Pixtral's tower.
#include <fmt/format.h>

#include <algorithm>

#include "llm/image_reader_parts.hpp"
#include "vision/grid_tower.hpp"
#include "vision/images.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::llm::detail {
namespace {

using io::ConfigKeys;
using vision::GridKind;

/// Patches that become one row side by side, then two products.
struct Merger {
  Tensor norm, norm_bias;
  double norm_eps = 1e-6;
  bool norms_rows = false;  // the norm is of a whole row, and not of each patch
  vision::Linear merging;   // Mistral 3: from the patches of a row back to the width of one
  vision::Linear first, second;

  Tensor operator()(const Tensor& states, Extent patches) const {
    const auto normed = [&](const Tensor& x) {
      if (!norm.defined()) return x;
      return norm_bias.defined() ? layer_norm(x, norm, norm_bias, norm_eps) : rms_norm(x, norm, norm_eps);
    };
    Tensor x = norms_rows ? states : normed(states);
    const Extent rows = x.dim(0) / patches, width = x.dim(1);
    if (merging.weight.defined())  // its columns have the patches of a channel side by side
      x = merging(reshape(permute(reshape(x, {rows, patches, width}), {0, 2, 1}), {rows, patches * width}));
    else
      x = reshape(x, {rows, patches * width});
    if (norms_rows) x = normed(x);
    return second(vision::activated(first(x), vision::Activation::gelu));
  }
};

class GridReader : public ImageReader {
 public:
  explicit GridReader(const ImageReaderInput& input);

  vision::PreparedImage prepare(const Tensor& image) const override;
  Extent tile_rows(const vision::PreparedImage& image) const override {
    const RowGrid grid = rows_in(image);
    return grid.height * grid.width;
  }
  std::string text_of(const vision::PreparedImage& image) const override;
  RowGrid grid_of(const vision::PreparedImage& image) const override {
    return is_pixtral_ ? RowGrid{} : rows_in(image);
  }
  RowGrid shape_of(const vision::PreparedImage& image) const override { return rows_in(image); }
  std::vector<std::vector<float>> see(std::span<const Tile> tiles) override;

 private:
  Extent step() const { return tower_->config().patch_size * tower_->config().merge; }
  RowGrid rows_in(const vision::PreparedImage& image) const;
  void read_qwen(const ConfigKeys& keys, GridKind kind, vision::ModelWeights& weights, Extent width);
  void read_pixtral(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width);
  Tensor connected(std::span<const Tensor> inputs) const;

  vision::ImageProcessor processor_;
  bool is_pixtral_ = false;
  std::unique_ptr<vision::GridTower> tower_;
  std::vector<Merger> mergers_;  // of the states that the tower gives, in their order
  std::string break_, end_;      // Pixtral: behind the rows of a line, and behind the last line
  Device device_;
  std::unique_ptr<Compiled> pass_;
};

GridKind kind_of(const std::string& type) {
  return type == "qwen2_vl"     ? GridKind::qwen2
         : type == "qwen2_5_vl" ? GridKind::qwen2_5
         : type == "qwen3_vl"   ? GridKind::qwen3
                                : GridKind::pixtral;
}

GridReader::GridReader(const ImageReaderInput& input) : processor_(input.files.processor), device_(input.device) {
  const std::string& source = input.files.source;
  const ConfigKeys keys(input.files.config, source);
  const GridKind kind = kind_of(keys.text({"model_type"}));
  is_pixtral_ = kind == GridKind::pixtral;
  vision::ModelWeights weights(input.files.tensors, device_, input.files.shown, input.is_planned);
  if (is_pixtral_)
    read_pixtral(keys, weights, input.hidden);
  else
    read_qwen(keys, kind, weights, input.hidden);
  weights.require_all();
  bytes_ = weights.bytes();
  if (!processor_.keeps_proportions())
    throw FileError(
        fmt::format("{}: the settings of images do not keep their proportions, as the model reads them; do the "
                    "files belong to one model?",
                    input.files.place));
  processor_.set_step(step());
  row_token_ = token_of(keys, {"image_token_index", "image_token_id"}, is_pixtral_ ? 10 : 151655, input.tokenizer);
  row_text_ = marker_ = text_of_token(row_token_, input.tokenizer, source);
  if (is_pixtral_) {
    break_ = "[IMG_BREAK]";
    end_ = "[IMG_END]";
    for (const std::string& each : {break_, end_})
      if (input.tokenizer.id_of(each) == text::kNoToken)
        throw FileError(fmt::format("{}: the token {} is not in tokenizer.json", source, each));
  }
  pass_ = std::make_unique<Compiled>([this](std::span<const Tensor> a) { return std::vector<Tensor>{connected(a)}; });
}

void GridReader::read_qwen(const ConfigKeys& keys, GridKind kind, vision::ModelWeights& weights, Extent width) {
  const auto tower = vision::grid_tower_config(kind, keys.json().at("vision_config"), keys.source(), "vision_config");
  if (tower.out != width)
    keys.fail("vision_config",
              fmt::format("makes rows of {}, and the language model has a width of {}", tower.out, width));
  const std::string prefix = prefix_of(weights.source(), {"visual.", "model.visual."}, "patch_embed.proj.weight");
  tower_ = std::make_unique<vision::GridTower>(tower, weights, prefix);
  const Extent hidden = tower.stack.hidden, row = hidden * tower.merge * tower.merge;
  const bool is_third = kind == GridKind::qwen3;
  const auto merger = [&](const std::string& name, bool norms_rows) {
    const std::string norm = name + (is_third ? "norm" : "ln_q");
    Merger m;
    m.norms_rows = norms_rows;
    m.norm = weights.dense(norm + ".weight", {norms_rows ? row : hidden});
    if (kind != GridKind::qwen2_5) m.norm_bias = weights.dense(norm + ".bias", {norms_rows ? row : hidden});
    m.first = vision::linear_of(weights, name + (is_third ? "linear_fc1" : "mlp.0"), row, row);
    m.second = vision::linear_of(weights, name + (is_third ? "linear_fc2" : "mlp.2"), width, row);
    return m;
  };
  for (std::size_t i = 0; i < tower.taken.size(); ++i)
    mergers_.push_back(merger(fmt::format("{}deepstack_merger_list.{}.", prefix, i), true));
  mergers_.push_back(merger(prefix + "merger.", false));
}

void GridReader::read_pixtral(const ConfigKeys& keys, vision::ModelWeights& weights, Extent width) {
  const bool merges = keys.text({"model_type"}) == "mistral3";
  const Extent merge = merges ? keys.size({"spatial_merge_size"}, 2) : 1;
  auto tower = vision::grid_tower_config(GridKind::pixtral, keys.json().at("vision_config"), keys.source(),
                                         "vision_config", merge);
  const std::vector<Extent> layers = feature_layers(keys, merges ? -1 : -2, tower.stack.layers);
  if (layers.size() != 1 || layers[0] < 1)
    keys.fail("vision_feature_layer", "is not one layer, which Weft's Pixtral needs");
  if (!merges && keys.text({"vision_feature_select_strategy"}, "default") != "full")
    keys.fail("vision_feature_select_strategy", "is not \"full\", and the tower has no class token to leave out");
  tower.stack.layers = layers[0];
  require_gelu(keys);
  const io::TensorSource& files = weights.source();
  tower_ = std::make_unique<vision::GridTower>(
      tower, weights, prefix_of(files, {"vision_tower.", "model.vision_tower."}, "patch_conv.weight"));
  const std::string projector =
      prefix_of(files, {"multi_modal_projector.", "model.multi_modal_projector."}, "linear_1.weight");
  const Extent hidden = tower.stack.hidden;
  const bool has_bias = keys.flag("multimodal_projector_bias", !merges);
  Merger m;
  if (merges) {
    m.norm = weights.dense(projector + "norm.weight", {hidden});
    const Json& text = keys.json().at("text_config");
    m.norm_eps = ConfigKeys(text, keys.source(), "text_config").number({"rms_norm_eps"}, 1e-6);
    m.merging =
        vision::linear_of(weights, projector + "patch_merger.merging_layer", hidden, hidden * merge * merge, false);
  }
  m.first = vision::linear_of(weights, projector + "linear_1", width, hidden, has_bias);
  m.second = vision::linear_of(weights, projector + "linear_2", width, width, has_bias);
  mergers_.push_back(std::move(m));
}

Tensor GridReader::connected(std::span<const Tensor> inputs) const {
  const std::vector<Tensor> states = tower_->states(inputs);
  const Extent patches = tower_->config().merge * tower_->config().merge;
  // The rows of the language model's input first, then those of its layers.
  std::vector<Tensor> rows = {mergers_.back()(states.back(), patches)};
  for (std::size_t i = 0; i + 1 < mergers_.size(); ++i) rows.push_back(mergers_[i](states[i], patches));
  return rows.size() == 1 ? rows[0] : concat(rows, 1);
}

RowGrid GridReader::rows_in(const vision::PreparedImage& image) const {
  const bool is_ready = !image.ready.empty();
  const Extent height = is_ready ? image.ready_height : image.tiles[0].height,
               width = is_ready ? image.ready_width : image.tiles[0].width;
  return {height / step(), width / step()};
}

vision::PreparedImage GridReader::prepare(const Tensor& image) const {
  vision::PreparedImage prepared;
  if (image.defined() && image.dtype() == DType::f32) {
    const bool is_whole = image.shape().rank() == 3 && image.dim(0) == 3 && image.dim(1) > 0 && image.dim(2) > 0 &&
                          image.dim(1) % step() == 0 && image.dim(2) % step() == 0;
    if (!is_whole)
      throw UsageError(
          fmt::format("llm: an image f32 {}; give u8 [height, width, 3], or f32 [3, height, width], normalised, with "
                      "sides that are multiples of {}",
                      image.shape().to_string(), step()));
    prepared.ready = image.to_vector<float>();
    prepared.ready_height = image.dim(1);
    prepared.ready_width = image.dim(2);
  } else {
    prepared = processor_.prepare(image::pixels_of(image, "llm"));
  }
  if (const Extent rows = tile_rows(prepared); rows > 4 * kTileRowsMax)
    throw UsageError(
        fmt::format("llm: the image becomes {} rows of a prompt; Weft reads at most {}. Make it smaller, or set a "
                    "smaller size in preprocessor_config.json",
                    rows, 4 * kTileRowsMax));
  return prepared;
}

std::string GridReader::text_of(const vision::PreparedImage& image) const {
  const RowGrid grid = rows_in(image);
  std::string text;
  for (Extent y = 0; y < grid.height; ++y) {
    for (Extent x = 0; x < grid.width; ++x) text += row_text_;
    text += y + 1 == grid.height ? end_ : break_;
  }
  return text;
}

std::vector<std::vector<float>> GridReader::see(std::span<const Tile> tiles) {
  const RowGrid rows = rows_in(*tiles[0].image);
  const Extent merge = tower_->config().merge;
  const vision::PatchGrid grid = vision::patch_grid(tower_->config(), rows.height * merge, rows.width * merge);
  std::vector<std::vector<float>> made;
  for (const std::size_t size : vision::pass_sizes(tiles.size(), static_cast<Extent>(grid.y.size()))) {
    std::vector<std::vector<float>> planes;
    for (const Tile& tile : tiles.first(size))
      planes.push_back(tile.image->ready.empty() ? processor_.normalized(tile.image->tiles[0]) : tile.image->ready);
    append_parts(made, (*pass_)(tower_->inputs(grid, planes, device_))[0].to_vector<float>(), size);
    tiles = tiles.subspan(size);
  }
  for (std::vector<float>& picture : made) {
    std::vector<float> ordered(picture.size());
    const std::size_t width = picture.size() / grid.row.size();
    for (std::size_t i = 0; i < grid.row.size(); ++i)
      std::copy_n(picture.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                  ordered.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(grid.row[i]) * width));
    picture = std::move(ordered);
  }
  return made;
}

}  // namespace

std::unique_ptr<ImageReader> grid_reader(const ImageReaderInput& input) { return std::make_unique<GridReader>(input); }

}  // namespace weft::llm::detail
