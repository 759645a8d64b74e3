#include "llm/weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_set>

#include "backend/contract.hpp"
#include "base/file.hpp"
#include "graph/packed.hpp"
#include "runtime/devices.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

struct Prefix {
  std::string_view drop, add, probe;
};
// Some files leave out the prefix of all names, or have one more.
constexpr Prefix kPrefixes[] = {{"", "", "model.embed_tokens.weight"},
                                {"", "", "wte.weight"},
                                {"", "", "token_embd.weight"},
                                {"", "", "backbone.embeddings.weight"},
                                {"", "transformer.", "wte.weight"},
                                {"transformer.", "", "transformer.word_embeddings.weight"},
                                {"model.", "", "model.embed_tokens.weight"},
                                {"", "language_model.", "model.embed_tokens.weight"},
                                {"model.", "model.language_model.", "model.embed_tokens.weight"},
                                {"model.", "model.text_model.", "model.embed_tokens.weight"}};

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
}

/// The layer behind the last that a tensor is of, or -1.
Extent further_layer_of(std::string_view name, const ModelConfig& config) {
  for (Extent i = config.layers; i < config.layers + config.further_layers; ++i) {
    const std::string part = fmt::format("{}{}.", config.from_gguf ? "blk." : "layers.", i);
    const std::size_t at = name.find(part);
    if (at == 0 || (at != std::string_view::npos && name[at - 1] == '.')) return i;
  }
  return -1;
}

/// Keys and values of layers that read those of others, which files have although nothing reads them; and factors that are off.
bool is_unread(std::string_view name, const ModelConfig& config) {
  if (config.streams.count > 0 && !config.streams.are_scaled &&
      ends_with_any(name, {"altup.correct_output_scale", "altup_correct_scale.weight"}))
    return true;
  if (config.layers_without_keys == 0 ||
      !ends_with_any(name, {"self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.k_norm.weight",
                            "attn_k.weight", "attn_v.weight", "attn_k_norm.weight"}))
    return false;
  for (Extent i = config.layers - config.layers_without_keys; i < config.layers; ++i)
    if (name.find(fmt::format("{}{}.", config.from_gguf ? "blk." : "layers.", i)) != std::string_view::npos)
      return true;
  return false;
}

/// Tensors in files that are not weights of the text model: computed masks and frequencies, vision and audio parts.
bool is_known_extra(std::string_view name, const ModelConfig& config) {
  return ends_with_any(
             name, {"rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "attention.bias", "attention.masked_bias",
                    "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}) ||
         name.find("vision") != std::string_view::npos || name.starts_with("visual.") ||
         name.find("audio") != std::string_view::npos ||
         name.starts_with("mtp.") ||  // layers that guess further tokens
         is_unread(name, config) || name.starts_with("model.visual.") ||
         name.find("multi_modal_projector") != std::string_view::npos ||
         name.find("connector.") != std::string_view::npos || ends_with_any(name, {"image_newline"}) ||
         further_layer_of(name, config) >= 0 || (config.tied && ends_with_any(name, {"lm_head.weight"}));
}

Shape shape_of(const TensorDesc& tensor) {
  Shape shape;
  for (const Dim& d : tensor.shape) shape.push_back(d.value);
  return shape;
}

/// Of the tensor in the file.
Shape shape_in_file(const TensorDesc& tensor) {
  if (tensor.cut) return tensor.cut->file;
  Shape shape = shape_of(tensor);
  if (tensor.keys.size() > 1) shape = Shape(std::vector<Extent>(shape.begin() + 1, shape.end()));
  if (tensor.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

/// A weight as it will be packed.
struct Packing {
  BlockType type = BlockType::f32;
  std::vector<const io::SourceTensor*> parts;  // in the model's files
  Extent experts = 0;                          // 0: the weight is a matrix
  Extent rows = 0, padded = 0;                 // of a matrix in the files, and packed
  Extent columns = 0;

  Shape shape() const { return experts > 0 ? Shape{experts, padded, columns} : Shape{padded, columns}; }
  Extent all_rows() const { return std::max<Extent>(1, experts) * padded; }
};

/// Nothing if the device has no products with the weight as it is. Matrices of f32 stay dense, because dense products have kernels of
/// their own; experts of f32 are packed, so that one product has them all.
std::optional<Packing> packing_of(const TensorDesc& tensor, const TensorNames& names, Device device) {
  if (tensor.keys.empty() || tensor.element != Element::weight || tensor.transposed || tensor.shape.size() < 2)
    return {};
  const Shape shape = shape_of(tensor);
  Packing packing{.rows = shape[shape.rank() - 2], .columns = shape[shape.rank() - 1]};
  packing.padded = packing.rows;
  if (shape.rank() > 2) {
    packing.experts = shape[0];
    packing.padded = padded_rows_of_experts(packing.rows);
  }
  for (std::size_t i = 0; i < tensor.keys.size(); ++i) {
    const io::SourceTensor& found = names.part(tensor, i);
    if (i > 0 && *found.type != packing.type) return {};
    packing.type = *found.type;
    packing.parts.push_back(&found);
  }
  if ((packing.type == BlockType::f32 && packing.experts == 0) || !can_pack(packing.type, device) ||
      !rows_divide(packing.type, packing.columns))
    return {};
  return packing;
}

/// The rows of all experts, where files have them apart, or rows of zeros follow those of each.
std::vector<std::byte> joined_experts(const Packing& packing, const TensorNames& names) {
  const auto bytes = [&](Extent rows) {
    return bytes_for(packing.type, Shape{rows, packing.columns}, packing.parts[0]->name);
  };
  const std::size_t from = bytes(packing.rows), to = bytes(packing.padded);
  std::vector<std::byte> joined(static_cast<std::size_t>(packing.experts) * to);
  std::byte* at = joined.data();
  for (const io::SourceTensor* part : packing.parts) {
    const io::LoadedTensor loaded = io::TensorSource::loaded(*part);
    names.source().require_finite(loaded.tensor, loaded.tensor.data);  // a NaN scale would make every logit NaN
    for (std::size_t first = 0; first < loaded.tensor.data.size(); first += from, at += to)
      std::copy_n(loaded.tensor.data.begin() + static_cast<std::ptrdiff_t>(first), from, at);
    if (!loaded.made) release_pages(loaded.tensor.data);
  }
  return joined;
}

Tensor packed(const Packing& packing, const TensorNames& names, Device device, backend::SharedMemory* memory) {
  if (packing.parts.size() > 1 || packing.padded != packing.rows)
    return pack_matrix(packing.type, joined_experts(packing, names), packing.shape(), device, {.memory = memory});
  const io::LoadedTensor whole = io::TensorSource::loaded(*packing.parts[0]);
  std::span<const std::byte> before;
  const auto release = [&] {  // the host needs no copy of data that is on the device
    if (!whole.made) release_pages(before);
  };
  const auto check = [&](std::span<const std::byte> part) {
    release();
    names.source().require_finite(whole.tensor, part);
    before = part;
  };
  Tensor made =
      pack_matrix(packing.type, whole.tensor.data, packing.shape(), device, {.memory = memory, .before = check});
  release();
  return made;
}

}  // namespace

TensorNames::TensorNames(const io::TensorSource& source) : source_(source) {
  for (const Prefix& prefix : kPrefixes) {
    const std::string probe = std::string(prefix.add) + std::string(prefix.probe.substr(prefix.drop.size()));
    if (!source.find(probe)) continue;
    drop_ = prefix.drop;
    add_ = prefix.add;
    return;
  }
}

const io::SourceTensor* TensorNames::find(std::string_view key) const {
  if (!key.starts_with(drop_)) return source_.find(key);
  const io::SourceTensor* found = source_.find(add_ + std::string(key.substr(drop_.size())));
  return found ? found : source_.find(key);
}

const io::SourceTensor& TensorNames::part(const TensorDesc& tensor, std::size_t i) const {
  const io::SourceTensor* whole = find(tensor.keys[i]);
  if (!whole || (tensor.cut && whole->shape != tensor.cut->file))
    throw InternalError(fmt::format("llm: {} was not checked", tensor.keys[i]));
  if (!tensor.cut) return *whole;
  const auto found = parts_.find({tensor.name, i});
  if (found != parts_.end()) return found->second;
  const bool is_group = tensor.keys.size() > 1;
  Shape shape = shape_of(tensor);
  if (is_group) shape = Shape(std::vector<Extent>(shape.begin() + 1, shape.end()));
  return parts_
      .emplace(std::pair(tensor.name, i), cut_from(*whole, *tensor.cut, is_group ? static_cast<Extent>(i) : 0,
                                                   is_group ? 1 : tensor.cut->groups, std::move(shape)))
      .first->second;
}

const Tensor& Weights::at(const std::string& name) const {
  auto it = weights.find(name);
  if (it == weights.end()) throw InternalError(fmt::format("llm: the weight {} was not loaded", name));
  return it->second;
}

void check_tensors(const ModelGraph& graph, const TensorNames& names) {
  std::string problems;
  int count = 0;
  const auto problem = [&](const std::string& line) {
    if (++count <= 40) problems += "\n  " + line;
  };
  std::unordered_set<const io::SourceTensor*> used;
  for (const TensorDesc& tensor : graph.tensors)
    for (const std::string& key : tensor.keys) {
      if (tensor.cut && &key != tensor.keys.data()) break;  // all keys are the same
      const Shape wanted = shape_in_file(tensor);
      const io::SourceTensor* found = names.find(key);
      if (!found) {
        problem(fmt::format("missing: {} {}", key, wanted.to_string()));
        continue;
      }
      used.insert(found);
      // GGUF files have some vectors as rows, one for each group.
      const bool is_in_rows = graph.config.from_gguf && wanted.rank() == 1 && found->shape.numel() == wanted.numel();
      if (found->shape != wanted && !is_in_rows)
        problem(
            fmt::format("{} is {}, the configuration asks for {}", key, found->shape.to_string(), wanted.to_string()));
      else if (!found->type)
        problem(fmt::format("{} is {}, which Weft does not read; convert the file", key, found->type_name));
    }
  for (const io::SourceTensor& tensor : names.source().tensors())
    if (!used.contains(&tensor) && !is_known_extra(tensor.name, graph.config))
      problem(fmt::format("unexpected: {} {}", tensor.name, tensor.shape.to_string()));
  if (count == 0) return;
  if (count > 40) problems += fmt::format("\n  and {} more", count - 40);
  throw FileError(fmt::format("{}: {} tensor{} not fit the architecture {}; is the file whole, and of this model?{}",
                              names.source().path().string(), count, count == 1 ? " does" : "s do",
                              graph.config.architecture, problems));
}

std::vector<std::string> notes_of_extra_tensors(const ModelConfig& config, const TensorNames& names) {
  std::unordered_set<Extent> layers;
  if (config.further_layers > 0)
    for (const io::SourceTensor& tensor : names.source().tensors())
      if (const Extent layer = further_layer_of(tensor.name, config); layer >= 0) layers.insert(layer);
  if (layers.empty()) return {};
  return {fmt::format("{} layer{} behind the last that guess{} further tokens {} left out", layers.size(),
                      layers.size() == 1 ? "" : "s", layers.size() == 1 ? "es" : "",
                      layers.size() == 1 ? "is" : "are")};
}

std::uint64_t file_bytes(const ModelGraph& graph, const TensorNames& names) {
  std::uint64_t bytes = 0;
  for (const TensorDesc& tensor : graph.tensors)
    for (std::size_t i = 0; i < tensor.keys.size(); ++i) bytes += names.part(tensor, i).size_bytes();
  return bytes;
}

std::uint64_t weight_bytes(const TensorDesc& tensor, const TensorNames& names, Device device) {
  if (const auto packing = packing_of(tensor, names, device))
    return weight_packing(device)->packed_bytes(packing->type, packing->all_rows(), packing->columns);
  return static_cast<std::uint64_t>(shape_of(tensor).numel()) * sizeof(float);
}

Extent padded_rows_of_experts(Extent rows) {
  return (rows + graph::kRowsOfExperts - 1) / graph::kRowsOfExperts * graph::kRowsOfExperts;
}

Tensor packed_experts(const std::vector<float>& values, const Shape& shape, Device device) {
  const Extent rows = padded_rows_of_experts(shape[1]);
  const auto part = static_cast<std::size_t>(shape[1] * shape[2]), whole = static_cast<std::size_t>(rows * shape[2]);
  std::vector<float> padded(static_cast<std::size_t>(shape[0]) * whole);
  for (std::size_t e = 0; e < static_cast<std::size_t>(shape[0]); ++e)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(e * part), part,
                padded.begin() + static_cast<std::ptrdiff_t>(e * whole));
  return pack_matrix(BlockType::f32, std::as_bytes(std::span(padded)), {shape[0], rows, shape[2]}, device);
}

Tensor dense_weight(const TensorDesc& tensor, const TensorNames& names, Device device) {
  const Shape shape = shape_of(tensor);
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  const std::size_t part = values.size() / tensor.keys.size();
  for (std::size_t i = 0; i < tensor.keys.size(); ++i) {
    const io::LoadedTensor found = io::TensorSource::loaded(names.part(tensor, i));
    names.source().require_finite(found.tensor);
    names.source().read_f32(found.tensor, std::span(values).subspan(i * part, part));
  }
  if (tensor.transposed) {
    std::vector<float> turned(values.size());
    const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < columns; ++c) turned[r * columns + c] = values[c * rows + r];
    values = std::move(turned);
  }
  return tensor_from_bytes(values.data(), shape, DType::f32, device).named(tensor.name);
}

Weights planned_weights(const ModelGraph& graph, const TensorNames& names, Device device) {
  Weights weights;
  for (const TensorDesc& tensor : graph.tensors) {
    if (tensor.keys.empty()) continue;
    const auto packing = packing_of(tensor, names, device);
    weights.bytes += weight_bytes(tensor, names, device);
    weights.weights.emplace(tensor.name, packing
                                             ? matrix_without_values(packing->type, packing->shape(), device)
                                             : Tensor(runtime::data_node(DType::f32, shape_of(tensor), device,
                                                                         runtime::allocate(device, 0, tensor.name))));
  }
  return weights;
}

Weights load_weights(const ModelGraph& graph, const TensorNames& names, Device device, const LoadProgress& progress,
                     const PackedFileRules& rules) {
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t total = file_bytes(graph, names);
  std::uint64_t done = 0;
  std::vector<std::optional<Packing>> packings;  // of each tensor of the graph
  std::vector<PackedPart> parts;
  for (const TensorDesc& tensor : graph.tensors) {
    packings.push_back(packing_of(tensor, names, device));
    if (const auto& packing = packings.back())
      parts.push_back({packing->parts[0]->name, packing->type, packing->shape()});
  }
  std::optional<PackedFile> file;
  const backend::WeightPacking* weight_packer = parts.empty() ? nullptr : weight_packing(device);
  if (weight_packer && weight_packer->can_keep()) file = PackedFile::of(names.source().files(), parts, rules, device);
  const bool is_mapped = file && file->open();

  Weights weights;
  std::vector<Tensor> all_packed;
  // Matrices take about as much packed as in the model's files.
  const std::unique_ptr<backend::SharedMemory> memory =
      weight_packer ? weight_packer->shared_memory(static_cast<std::size_t>(total), file.has_value()) : nullptr;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const TensorDesc& tensor = graph.tensors[i];
    if (tensor.keys.empty()) continue;
    if (const auto& packing = packings[i]) {
      const Tensor made = is_mapped ? file->matrix(all_packed.size()) : packed(*packing, names, device, memory.get());
      all_packed.push_back(made);
      weights.bytes += packed_size(made);
      weights.weights.emplace(tensor.name, made.named(tensor.name));
    } else {
      const Tensor made = dense_weight(tensor, names, device);
      weights.bytes += static_cast<std::uint64_t>(made.numel()) * sizeof(float);
      weights.weights.emplace(tensor.name, made);
    }
    for (std::size_t k = 0; k < tensor.keys.size(); ++k) {
      done += names.part(tensor, k).size_bytes();
      release_pages(names.find(tensor.keys[k])->data);
    }
    if (progress) progress(done, total);
  }
  if (is_mapped) {
    weights.packed_file = file->path();
  } else if (file) {
    // A short run waits for the file about as long as the load took, and then gives up.
    const auto loading = std::chrono::steady_clock::now() - start;
    weights.writer = std::make_unique<PackedFileWriter>(
        std::move(*file), std::move(all_packed),
        std::chrono::duration_cast<std::chrono::milliseconds>(loading) + std::chrono::seconds(2));
  }
  return weights;
}

}  // namespace weft::llm
