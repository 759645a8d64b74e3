#include "llm/weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "weft/error.hpp"

namespace weft::llm {
namespace {

struct Prefix {
  std::string_view drop, add, probe;
};
// Some files are written without the name of the whole, or with one more.
constexpr Prefix kPrefixes[] = {{"", "", "model.embed_tokens.weight"},
                                {"", "", "wte.weight"},
                                {"", "", "token_embd.weight"},
                                {"", "transformer.", "wte.weight"},
                                {"model.", "", "model.embed_tokens.weight"},
                                {"model.", "language_model.model.", "model.embed_tokens.weight"},
                                {"model.", "model.language_model.", "model.embed_tokens.weight"}};

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
}

/// What files hold beside weights: masks and frequencies that are computed, and parts that see or hear.
bool is_known_extra(std::string_view name, const ModelConfig& config) {
  return ends_with_any(name, {"rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "rope_freqs.weight",
                              "rope_factors_long.weight", "rope_factors_short.weight"}) ||
         name.find("vision") != std::string_view::npos ||
         name.find("multi_modal_projector") != std::string_view::npos ||
         (config.tied && ends_with_any(name, {"lm_head.weight"}));
}

Shape shape_of_part(const TensorDesc& tensor) {
  Shape shape;
  for (const Dim& d : tensor.shape) shape.push_back(d.value);
  if (tensor.keys.size() > 1) shape = Shape(std::vector<Extent>(shape.begin() + 1, shape.end()));
  if (tensor.transposed) std::swap(shape[0], shape[1]);
  return shape;
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

const Tensor& Weights::at(const std::string& name) const {
  auto it = tensors.find(name);
  if (it == tensors.end()) throw InternalError(fmt::format("llm: the weight {} was not loaded", name));
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
      const Shape wanted = shape_of_part(tensor);
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

Weights load_weights(const ModelGraph& graph, const TensorNames& names, Device device, const LoadProgress& progress) {
  check_tensors(graph, names);
  std::uint64_t total = 0, done = 0;
  for (const TensorDesc& tensor : graph.tensors)
    for (const std::string& key : tensor.keys) total += names.find(key)->data.size();
  Weights weights;
  for (const TensorDesc& tensor : graph.tensors) {
    if (tensor.keys.empty()) continue;
    Shape shape;
    for (const Dim& d : tensor.shape) shape.push_back(d.value);
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    const std::size_t part = values.size() / tensor.keys.size();
    for (std::size_t i = 0; i < tensor.keys.size(); ++i) {
      const io::SourceTensor& found = *names.find(tensor.keys[i]);
      names.source().read_f32(found, std::span(values).subspan(i * part, part));
      done += found.data.size();
    }
    if (tensor.transposed) {
      std::vector<float> turned(values.size());
      const auto rows = static_cast<std::size_t>(shape[0]), columns = static_cast<std::size_t>(shape[1]);
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t c = 0; c < columns; ++c) turned[r * columns + c] = values[c * rows + r];
      values = std::move(turned);
    }
    weights.tensors[tensor.name] = tensor_from_bytes(values.data(), shape, DType::f32, device).named(tensor.name);
    weights.bytes += values.size() * sizeof(float);
    if (progress) progress(done, total);
  }
  return weights;
}

}  // namespace weft::llm
