#include "io/fp8_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/quote.hpp"
#include "io/fp8_layer.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr Extent kTileMax = 1 << 20;

/// What a description says about the tiles of FP8 matrices that share a scale.
class Fp8Description {
 public:
  Fp8Description(const Json& json, const std::string& source) : source_(source) {
    const std::string method = text(json, "quant_method", "");
    if (method == "fp8")
      read_fp8(json);
    else if (method == "fbgemm_fp8")
      tiles_ = {{1, 0}};
    else if (method == "modelopt")
      read_modelopt(json);
    else
      read_compressed(json);
  }
  const std::vector<Fp8Tile>& tiles() const { return tiles_; }

 private:
  [[noreturn]] void fail(const std::string& fact) const { throw FileError(fmt::format("{}: {}", source_, fact)); }
  [[noreturn]] void refuse(const std::string& fact) const {
    fail(fact + "; take another copy of the model, or one that is not quantised");
  }
  /// The member of an object; null if there is none, or it is null.
  const Json* find(const Json& object, const char* key) const {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  std::string text(const Json& object, const char* key, const char* fallback) const {
    const Json* found = find(object, key);
    if (found && !found->is_string()) fail(fmt::format("{} is {}, not a string", key, quote(found->dump(), 40)));
    return found ? found->get<std::string>() : fallback;
  }
  Fp8Tile tile_of(const Json& sides, const char* key) const {
    const auto is_side = [](const Json& side) { return side.is_number_integer() && side >= 1 && side <= kTileMax; };
    if (!sides.is_array() || sides.size() != 2 || !is_side(sides[0]) || !is_side(sides[1]))
      fail(fmt::format("{} is {}, not two whole numbers from 1 to {}", key, quote(sides.dump(), 40), kTileMax));
    return {sides[0].get<Extent>(), sides[1].get<Extent>()};
  }

  void read_fp8(const Json& json) {
    if (const std::string form = text(json, "fmt", "e4m3"); form != "e4m3")
      refuse(fmt::format("the fmt of fp8 is {}; Weft reads \"e4m3\"", quote(form, 40)));
    if (const Json* sides = find(json, "weight_block_size"))
      tiles_ = {tile_of(*sides, "weight_block_size")};
    else
      tiles_ = {{0, 0}, {1, 0}};
  }

  void read_modelopt(const Json& json) {
    if (const std::string kind = text(json, "quant_algo", ""); kind != "FP8")
      refuse(fmt::format("the quant_algo of ModelOpt is {}; Weft reads \"FP8\"", quote(kind, 40)));
    tiles_ = {{0, 0}};
  }

  /// Groups of layers, each with a description of its weights.
  void read_compressed(const Json& json) {
    const std::string form = text(json, "format", "float-quantized");
    if (form != "float-quantized" && form != "naive-quantized")
      refuse(fmt::format("the format of compressed-tensors is {}; Weft reads \"float-quantized\"", quote(form, 40)));
    if (const Json* sparse = find(json, "sparsity_config"); sparse && sparse->is_object())
      if (const std::string kind = text(*sparse, "format", "dense"); kind != "dense")
        refuse(fmt::format("the format of sparsity_config is {}; Weft reads \"dense\"", quote(kind, 40)));
    const Json* groups = find(json, "config_groups");
    if (!groups || !groups->is_object() || groups->empty()) fail("config_groups is not an object with a group");
    for (const auto& [name, group] : groups->items()) {
      const Json* weights = group.is_object() ? find(group, "weights") : nullptr;
      if (weights && weights->is_object()) read_group(quote(name, 40), *weights);
    }
    if (tiles_.empty()) fail("no group of config_groups has weights");
  }
  void read_group(const std::string& group, const Json& weights) {
    const Json* bits = find(weights, "num_bits");
    const std::string type = text(weights, "type", "int"), strategy = text(weights, "strategy", "tensor");
    if (type != "float" || !bits || *bits != 8)
      refuse(fmt::format("the weights of {} have type {} of {} bits; Weft reads \"float\" of 8", group, quote(type, 40),
                         bits ? quote(bits->dump(), 40) : "no"));
    if (strategy == "tensor")
      tiles_.push_back({0, 0});
    else if (strategy == "channel")
      tiles_.push_back({1, 0});
    else if (strategy == "block")
      tiles_.push_back(tile_of(weights.value("block_structure", Json()), "block_structure"));
    else if (strategy == "group")
      tiles_.push_back({1, tile_of(Json::array({1, weights.value("group_size", Json())}), "1 by group_size").columns});
    else
      refuse(fmt::format("the weights of {} have the strategy {}; Weft reads tensor, channel, group and block", group,
                         quote(strategy, 40)));
  }

  const std::string& source_;
  std::vector<Fp8Tile> tiles_;
};

/// Scales that round activations or a cache while a model runs.
bool is_scale_of_activations(std::string_view name) {
  constexpr std::string_view kEnds[] = {".input_scale", ".activation_scale", ".input_scale_ub", ".output_scale",
                                        ".q_scale",     ".k_scale",          ".v_scale",        ".kv_scale"};
  return std::any_of(std::begin(kEnds), std::end(kEnds), [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

bool is_method_of_fp8(const Json& description) {
  if (!description.is_object()) return false;
  const Json method = description.value("quant_method", Json());
  return method == "fp8" || method == "fbgemm_fp8" || method == "compressed-tensors" || method == "modelopt";
}

void add_fp8_layers(const Json& description, const std::string& source_text, const TensorSource& source,
                    std::vector<SourceTensor>& tensors, std::unordered_set<const SourceTensor*>& used,
                    std::vector<std::string>& notes) {
  const Fp8Description read(description, source_text);
  std::size_t of_f16 = 0, of_bf16 = 0, of_activations = 0;
  for (const SourceTensor& tensor : source.tensors()) {
    if (is_scale_of_activations(tensor.name)) {
      used.insert(&tensor);
      ++of_activations;
      continue;
    }
    if (tensor.type_name != "F8_E4M3") continue;
    const SourceTensor* scales = source.find(tensor.name + "_scale_inv");
    if (!scales) scales = source.find(tensor.name + "_scale");
    if (!scales)
      throw FileError(fmt::format("{}: {} is in FP8, and there is neither {} nor {}; is the file whole?",
                                  source.path().string(), quote(tensor.name), quote(tensor.name + "_scale_inv"),
                                  quote(tensor.name + "_scale")));
    const auto layer = std::make_shared<const Fp8Layer>(read.tiles(), tensor, *scales, source.path().string());
    used.insert({&tensor, scales});
    tensors.push_back({tensor.name,
                       layer->shape(),
                       std::string(file_name_of(layer->type())),
                       layer->type(),
                       {},
                       [layer](std::span<std::byte> values) { layer->write(values); }});
    ++(layer->type() == BlockType::f16 ? of_f16 : of_bf16);
  }
  const auto matrices = [](std::size_t n) {
    return n == 1 ? std::string("1 matrix in FP8 is") : fmt::format("{} matrices in FP8 are", n);
  };
  if (of_f16 > 0) notes.push_back(matrices(of_f16) + " unpacked to F16");
  if (of_bf16 > 0) notes.push_back(matrices(of_bf16) + " unpacked to BF16, because F16 would lose their scales");
  if (of_activations > 0)
    notes.push_back(fmt::format("{} scales of activations and caches are not used: Weft does not round these to FP8",
                                of_activations));
}

}  // namespace weft::io
