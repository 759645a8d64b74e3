#include "llm/convert_folds.hpp"

#include <fmt/format.h>

#include <cmath>

#include "llm/config_write.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

constexpr const char* kXielu[] = {"alpha_p", "alpha_n", "beta", "eps"};

std::string xielu_name(Extent layer, const char* part) {
  return fmt::format("model.layers.{}.mlp.act_fn.{}", layer, part);
}

}  // namespace

std::map<std::string, std::vector<RowFactor>> take_factors_of_parts(ModelConfig& c) {
  std::map<std::string, std::vector<RowFactor>> factors;
  if (c.architecture != "falcon_h1" || c.from_gguf) return factors;
  const HybridFactors f = c.hybrid_factors;
  const StateSpace& s = c.state_space;
  const auto put = [&](const std::string& name, Extent rows, double factor) {
    if (factor != 1) factors[name] = {{rows, factor}};
  };
  const double width = static_cast<double>(c.head_dim), of_keys = c.attention_scale * std::sqrt(width);
  const Extent queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim, shared = s.groups * s.states;
  const std::vector<double> of_parts = s.part_factors.empty() ? std::vector<double>(5, 1.0) : s.part_factors;
  for (Extent i = 0; i < c.layers; ++i) {
    const auto id = [&](const char* part) { return fmt::format("layer{}.{}", i, part); };
    put(id("q.weight"), queries, f.attention_in);
    put(id("k.weight"), keys, f.attention_in * of_keys);
    put(id("v.weight"), keys, f.attention_in);
    put(id("k.bias"), keys, of_keys);
    for (const char* kind : {"weight", "bias"}) {
      put(id("o.") + kind, c.hidden, f.attention_out);
      put(id("ssm_out.") + kind, c.hidden, f.state_out);
      put(id("gate.") + kind, c.intermediate, f.mlp_gate);
      put(id("down.") + kind, c.hidden, f.mlp_down);
      // Of the gate, x, b, c and the steps.
      const double in = kind == std::string_view("weight") ? f.state_in : 1;
      factors[id("ssm_in.") + kind] = {{s.inner, in * of_parts[0]},
                                       {s.inner, in * of_parts[1]},
                                       {shared, in * of_parts[2]},
                                       {shared, in * of_parts[3]},
                                       {s.heads, in * of_parts[4]}};
    }
  }
  if (!c.tied) {
    put("embed.weight", c.vocabulary, c.embedding_scale);
    put("lm_head.weight", c.vocabulary, c.logit_scale);
    c.embedding_scale = c.logit_scale = 1;
  }
  c.attention_scale = 1 / std::sqrt(width);
  c.hybrid_factors = {.are_side_by_side = true};
  c.state_space.part_factors.clear();
  return factors;
}

void take_xielu(ModelConfig& c, const io::TensorSource& source, const TensorNames& names) {
  if (c.architecture != "apertus" || c.from_gguf) return;
  for (Extent i = 0; i < c.layers; ++i) {
    std::array<double, 4> numbers{};
    for (std::size_t part = 0; part < numbers.size(); ++part) {
      const std::string name = xielu_name(i, kXielu[part]);
      const io::SourceTensor* tensor = names.find(name);
      if (!tensor || tensor->shape.numel() != 1) throw InternalError(fmt::format("llm: no number {}", name));
      float value = 0;
      source.read_f32(*tensor, std::span(&value, 1));
      numbers[part] = double{value};
    }
    c.xielu.push_back(numbers);
  }
}

std::vector<NumberTensor> xielu_tensors(const ModelConfig& c) {
  std::vector<NumberTensor> tensors;
  for (std::size_t i = 0; i < c.xielu.size(); ++i)
    for (std::size_t part = 0; part < 4; ++part)
      tensors.push_back({xielu_name(static_cast<Extent>(i), kXielu[part]), part < 2 ? Shape{1} : Shape{},
                         static_cast<float>(c.xielu[i][part])});
  return tensors;
}

void add_xielu(io::GgufMetadata& metadata, const ModelConfig& c) {
  for (std::size_t part = 0; part < 4; ++part) {
    std::vector<float> list;
    for (const auto& numbers : c.xielu) list.push_back(static_cast<float>(numbers[part]));
    metadata.set(fmt::format("xielu.{}", kXielu[part]), io::GgufArray(list));
  }
}

}  // namespace weft::llm
