#include "io/quantise_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/name_pattern.hpp"
#include "base/quote.hpp"
#include "io/quantise_mixture.hpp"
#include "io/recode.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

/// Matrices whose quantisation costs more than it saves: small matrices, and routers.
constexpr std::string_view kKept[] = {
    "*_norm.weight",
    "position_embd.weight",
    "token_types.weight",
    "*ffn_gate_inp.weight",
    "*ssm_conv1d*",
    "*shortconv.conv.weight",
    "*attn_rel_b.weight",
    "*indexer.?_proj.weight",
    "*per_layer_model_proj*",
    "*altup*",
    "*laurel*",
    "*time_mix_first.weight",
    "*time_mix_w0.weight",
    "*time_mix_w1.weight",
    "*time_mix_w2.weight",
    "*time_mix_v0.weight",
    "*time_mix_v1.weight",
    "*time_mix_v2.weight",
    "*time_mix_a0.weight",
    "*time_mix_a1.weight",
    "*time_mix_a2.weight",
    "*time_mix_g1.weight",
    "*time_mix_g2.weight",
    "*time_mix_decay_w1.weight",
    "*time_mix_decay_w2.weight",
    "*time_mix_lerp_fused.weight",
};

/// Only axes with more than one element count: [1, 576] is a vector.
int rank_of(const Shape& shape) {
  return static_cast<int>(std::count_if(shape.begin(), shape.end(), [](Extent extent) { return extent != 1; }));
}

/// The nearest format that rows of this length divide into.
BlockType fitting(BlockType type, Extent row) {
  if (rows_divide(type, row)) return type;
  BlockType smaller = BlockType::f16;
  switch (type) {
    case BlockType::q2_k:
    case BlockType::q3_k: smaller = BlockType::q4_0; break;
    case BlockType::iq4_xs: smaller = BlockType::iq4_nl; break;
    case BlockType::q4_k: smaller = BlockType::q5_0; break;
    case BlockType::q5_k: smaller = BlockType::q5_1; break;
    case BlockType::q6_k: smaller = BlockType::q8_0; break;
    default: break;
  }
  return rows_divide(smaller, row) ? smaller : BlockType::f16;
}

bool is_number(const SourceTensor& tensor) { return tensor.type && block_format(*tensor.type).can_quantise(); }

bool is_kept(const SourceTensor& tensor) {
  return rank_of(tensor.shape) < 2 || !tensor.name.ends_with("weight") || !is_number(tensor) ||
         std::any_of(std::begin(kKept), std::end(kKept),
                     [&](std::string_view pattern) { return matches_pattern(tensor.name, pattern); });
}

/// N of a name that begins with "blk.N."; nothing for other names, and for numbers too large for a model.
std::optional<int> layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return {};
  int layer = 0;
  const char* const end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, layer);
  if (error != std::errc() || at == end || *at != '.' || layer < 0 || layer > 100'000) return {};
  return layer;
}

MixtureModel facts_of(const TensorSource& source) {
  const GgufMetadata& m = source.gguf()->metadata();
  const std::string family = m.get_or<std::string>("general.architecture", "");
  MixtureModel model;
  for (const SourceTensor& tensor : source.tensors())
    model.layers = std::max(model.layers, layer_of(tensor.name).value_or(-1) + 1);
  const auto first = [&](std::string_view key) -> std::int64_t {
    const std::string full = fmt::format("{}.{}", family, key);
    const auto all =
        m.contains(full) ? m.integers(full) : std::vector<std::int64_t>();  // some families: for each layer
    return all.empty() ? 0 : all.front();
  };
  model.experts = static_cast<int>(std::clamp<std::int64_t>(first("expert_count"), 0, 100'000));
  const std::int64_t heads = first("attention.head_count"), kv_heads = first("attention.head_count_kv");
  if (heads > 0 && kv_heads > 0)
    model.queries_per_key = static_cast<int>(std::min<std::int64_t>(heads / kv_heads, 100'000));
  model.is_70b = model.layers == 80 && (family == "qwen2" || (family == "llama" && model.queries_per_key > 1));
  return model;
}

/// The facts about each tensor that the rules of a mixture need.
std::vector<MixtureTensor> facts_of_tensors(const TensorSource& source) {
  const bool tied = source.find("output.weight") == nullptr;
  std::vector<MixtureTensor> facts;
  std::vector<std::pair<std::pair<int, std::string_view>, std::size_t>> values;  // in the order of layers
  for (const SourceTensor& tensor : source.tensors()) {
    MixtureTensor each{.role = role_of(tensor.name), .layer = layer_of(tensor.name).value_or(0)};
    if (tied ? tensor.name == "token_embd.weight" || tensor.name == "per_layer_token_embd.weight"
             : tensor.name == "output.weight")
      each.role = TensorRole::output;
    each.of_experts = tensor.shape.rank() > 2 && tensor.shape[tensor.shape.rank() - 3] > 1;
    if (each.role == TensorRole::attention_values) values.push_back({{each.layer, tensor.name}, facts.size()});
    facts.push_back(each);
  }
  std::sort(values.begin(), values.end());
  for (std::size_t i = 0; i < values.size(); ++i) {
    facts[values[i].second].index = static_cast<int>(i);
    facts[values[i].second].of_index = static_cast<int>(values.size());
  }
  return facts;
}

TensorPlan plan_of(const SourceTensor& tensor, BlockType wanted, TypeReason reason) {
  const BlockType type = fitting(wanted, tensor.shape.empty() ? 1 : tensor.shape.back());
  return {&tensor, type, type == wanted ? reason : TypeReason::rows};
}

}  // namespace

std::vector<TensorPlan> plan_quantisation(const TensorSource& model, const QuantiseOptions& options) {
  if (!model.gguf())
    throw FileError(fmt::format("{}: not a GGUF file; convert it first: weft convert", model.path().string()));
  const Mixture mixture = find_mixture(options.type);
  const bool is_mixed = !options.pure && !block_format(mixture.type).is_plain();
  const MixtureModel facts = is_mixed ? facts_of(model) : MixtureModel{};
  const auto tensor_facts = facts_of_tensors(model);
  std::vector<TensorPlan> plan;
  std::vector<int> matched(options.rules.size());
  for (const SourceTensor& tensor : model.tensors()) {
    const TensorTypeRule* rule = nullptr;
    for (std::size_t i = 0; i < options.rules.size(); ++i)
      if (matches_pattern(tensor.name, options.rules[i].pattern)) {
        rule = &options.rules[i];
        ++matched[i];
      }
    if (rule && !is_number(tensor))
      throw UsageError(fmt::format("the pattern {} matches tensor {} of {}, which holds whole numbers; narrow it",
                                   quote(rule->pattern), quote(tensor.name), tensor.type_name));
    if (rule) {
      plan.push_back(plan_of(tensor, rule->type, TypeReason::rule));
    } else if (is_kept(tensor)) {
      plan.push_back({&tensor, tensor.type.value_or(BlockType::f32), TypeReason::kept});
    } else {
      const BlockType type = is_mixed ? type_in_mixture(mixture, facts, tensor_facts[plan.size()]) : mixture.type;
      plan.push_back(plan_of(tensor, type, type == mixture.type ? TypeReason::wanted : TypeReason::mixture));
    }
  }
  for (std::size_t i = 0; i < matched.size(); ++i)
    if (matched[i] == 0)
      throw UsageError(fmt::format("the pattern {} matches no tensor of {}; weft inspect lists their names",
                                   quote(options.rules[i].pattern), model.path().string()));
  return plan;
}

std::vector<TensorPlan> quantise_model(const TensorSource& model, const std::filesystem::path& out,
                                       const QuantiseOptions& options) {
  const std::vector<TensorPlan> plan = plan_quantisation(model, options);
  GgufMetadata metadata = model.gguf()->metadata();
  for (const char* key : {"split.no", "split.count", "split.tensors.count"}) metadata.erase(key);
  const Mixture mixture = find_mixture(options.type);
  if (const int file_type = options.pure ? block_format(mixture.type).file_type : mixture.file_type; file_type >= 0)
    metadata.set("general.file_type", static_cast<std::uint32_t>(file_type));
  metadata.set("general.quantization_version", std::uint32_t{2});

  std::vector<GgufTensorInfo> infos;
  std::uint64_t total = 0, done = 0;
  for (const TensorPlan& p : plan) {
    infos.push_back({p.tensor->name, p.tensor->shape, p.type});
    total += p.tensor->data.size();
  }
  GgufWriter writer(out, metadata, std::move(infos));
  for (const TensorPlan& p : plan) {
    if (options.progress) options.progress(*p.tensor, p.type, done, total);
    recode(model, *p.tensor, p.type, [&](std::span<const std::byte> bytes) { writer.write(bytes); });
    done += p.tensor->data.size();
  }
  writer.commit();
  return plan;
}

}  // namespace weft::io
