#include "llm/weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_set>

#include "backend/contract.hpp"
#include "base/file.hpp"
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

/// Tensors in files that are not weights of the text model: computed masks and frequencies, vision and audio parts.
bool is_known_extra(std::string_view name, const ModelConfig& config) {
  return ends_with_any(
             name, {"rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "attention.bias", "attention.masked_bias",
                    "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}) ||
         name.find("vision") != std::string_view::npos || name.starts_with("visual.") ||
         name.starts_with("model.visual.") || name.find("multi_modal_projector") != std::string_view::npos ||
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

/// Matrices of f32 stay dense, because dense products have kernels of their own. Experts are packed even so: packed products
/// skip the tokens of other experts.
bool packs(const TensorDesc& tensor, const TensorNames& names, Device device) {
  if (tensor.element != Element::weight || tensor.transposed || tensor.shape.size() < 2) return false;
  const bool of_experts = tensor.shape.size() > 2;
  for (std::size_t i = 0; i < tensor.keys.size(); ++i) {
    const io::SourceTensor& found = names.part(tensor, i);
    if ((*found.type == BlockType::f32 && !of_experts) || !can_pack(*found.type, device) ||
        !rows_divide(*found.type, tensor.shape.back().value))
      return false;
  }
  return true;
}

/// A matrix in the model's files.
struct Matrix {
  const io::SourceTensor* source = nullptr;
  std::size_t index = 0;  // of those in the tensor
  Extent n = 0, k = 0;
};

/// One of a plain weight, one for each expert of a mixture's.
std::vector<Matrix> matrices_of(const TensorDesc& tensor, const TensorNames& names) {
  const Shape shape = shape_of(tensor);
  const Extent n = shape[shape.rank() - 2], k = shape[shape.rank() - 1];
  std::vector<Matrix> matrices;
  for (std::size_t i = 0; i < tensor.keys.size(); ++i) {
    const io::SourceTensor& found = names.part(tensor, i);
    const auto count = static_cast<std::size_t>(found.shape.numel() / (n * k));
    for (std::size_t m = 0; m < count; ++m) matrices.push_back({&found, m, n, k});
  }
  return matrices;
}

Tensor packed(const Matrix& matrix, const TensorNames& names, Device device, backend::SharedMemory* memory) {
  const io::LoadedTensor whole = io::TensorSource::loaded(*matrix.source);
  const std::span<const std::byte> data = whole.tensor.data;
  const std::size_t bytes = bytes_for(*whole.tensor.type, Shape{matrix.n, matrix.k}, whole.tensor.name);
  std::span<const std::byte> before;
  const auto release = [&] {  // the host needs no copy of data that is on the device
    if (!whole.made) release_pages(before);
  };
  const auto check = [&](std::span<const std::byte> part) {
    release();
    // A NaN scale would make every logit NaN.
    names.source().require_finite(whole.tensor, part);
    before = part;
  };
  Tensor made = pack_matrix(*whole.tensor.type, data.subspan(matrix.index * bytes, bytes), {matrix.n, matrix.k}, device,
                            {.memory = memory, .before = check});
  release();
  return made;
}

Tensor dense(const TensorDesc& tensor, const TensorNames& names, Device device) {
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

const Weight& Weights::at(const std::string& name) const {
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
      if (found->shape != wanted)
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
  if (!packs(tensor, names, device)) return static_cast<std::uint64_t>(shape_of(tensor).numel()) * sizeof(float);
  std::uint64_t bytes = 0;
  for (const Matrix& m : matrices_of(tensor, names))
    bytes += weight_packing(device)->packed_bytes(*m.source->type, m.n, m.k);
  return bytes;
}

Weights planned_weights(const ModelGraph& graph, const TensorNames& names, Device device) {
  Weights weights;
  for (const TensorDesc& tensor : graph.tensors) {
    if (tensor.keys.empty()) continue;
    Weight weight;
    if (packs(tensor, names, device))
      for (const Matrix& m : matrices_of(tensor, names))
        weight.push_back(matrix_without_values(*m.source->type, {m.n, m.k}, device));
    if (weight.empty())
      weight.push_back(
          Tensor(runtime::data_node(DType::f32, shape_of(tensor), device, runtime::allocate(device, 0, tensor.name))));
    weights.bytes += weight_bytes(tensor, names, device);
    weights.weights.emplace(tensor.name, std::move(weight));
  }
  return weights;
}

Weights load_weights(const ModelGraph& graph, const TensorNames& names, Device device, const LoadProgress& progress,
                     const PackedFileRules& rules) {
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t total = file_bytes(graph, names);
  std::uint64_t done = 0;
  std::vector<std::vector<Matrix>> matrices;  // of each tensor of the graph; none: it is dense, or no weight
  std::vector<PackedPart> parts;
  for (const TensorDesc& tensor : graph.tensors) {
    const bool is_packed = !tensor.keys.empty() && packs(tensor, names, device);
    matrices.push_back(is_packed ? matrices_of(tensor, names) : std::vector<Matrix>());
    for (const Matrix& m : matrices.back()) parts.push_back({m.source->name, m.index, *m.source->type, m.n, m.k});
  }
  std::optional<PackedFile> file;
  const backend::WeightPacking* packing = parts.empty() ? nullptr : weight_packing(device);
  if (packing && packing->can_keep()) file = PackedFile::of(names.source().files(), parts, rules, device);
  const bool is_mapped = file && file->open();

  Weights weights;
  std::vector<Tensor> all_packed;
  // Matrices take about as much packed as in the model's files.
  const std::unique_ptr<backend::SharedMemory> memory =
      packing ? packing->shared_memory(static_cast<std::size_t>(total), file.has_value()) : nullptr;
  for (std::size_t i = 0; i < graph.tensors.size(); ++i) {
    const TensorDesc& tensor = graph.tensors[i];
    if (tensor.keys.empty()) continue;
    Weight weight;
    for (const Matrix& matrix : matrices[i]) {
      const Tensor made = is_mapped ? file->matrix(all_packed.size()) : packed(matrix, names, device, memory.get());
      all_packed.push_back(made);
      weights.bytes += packed_size(made);
      weight.push_back(made.named(tensor.name));
    }
    if (weight.empty()) {
      weight.push_back(dense(tensor, names, device));
      weights.bytes += static_cast<std::uint64_t>(weight[0].numel()) * sizeof(float);
    }
    weights.weights.emplace(tensor.name, std::move(weight));
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
