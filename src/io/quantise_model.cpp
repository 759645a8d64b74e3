#include "io/quantise_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/name_pattern.hpp"
#include "base/quote.hpp"
#include "io/recode.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

/// Matrices that lose more than they save: small ones, and those that choose.
constexpr std::string_view kKept[] = {
    "*_norm.weight",
    "position_embd.weight",
    "token_types.weight",
    "*ffn_gate_inp.weight",
    "*ssm_conv1d.weight",
    "*shortconv.conv.weight",
    "*attn_rel_b.weight",
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

/// Axes of more than one element count: [1, 576] is a vector.
int rank_of(const Shape& shape) {
  return static_cast<int>(std::count_if(shape.begin(), shape.end(), [](Extent extent) { return extent != 1; }));
}

/// The nearest format that rows of this length divide into.
BlockType fitting(BlockType type, Extent row) {
  if (rows_divide(type, row)) return type;
  BlockType smaller = BlockType::f16;
  switch (type) {
    case BlockType::q2_k:
    case BlockType::q3_k:
    case BlockType::iq4_xs: smaller = BlockType::iq4_nl; break;
    case BlockType::q4_k: smaller = BlockType::q5_0; break;
    case BlockType::q5_k: smaller = BlockType::q5_1; break;
    case BlockType::q6_k: smaller = BlockType::q8_0; break;
    default: break;
  }
  return rows_divide(smaller, row) ? smaller : BlockType::f16;
}

bool is_number(const SourceTensor& tensor) { return tensor.type && block_format(*tensor.type).can_quantise(); }

TensorPlan plan_of(const SourceTensor& tensor, const QuantiseOptions& options, const TensorTypeRule* rule,
                   bool is_output) {
  const Extent row = tensor.shape.empty() ? 1 : tensor.shape.back();
  BlockType wanted = options.type;
  TypeReason reason = TypeReason::wanted;
  if (rule) {
    wanted = rule->type;
    reason = TypeReason::rule;
  } else {
    const bool kept = rank_of(tensor.shape) < 2 || !tensor.name.ends_with("weight") || !is_number(tensor) ||
                      std::any_of(std::begin(kKept), std::end(kKept),
                                  [&](std::string_view pattern) { return matches_pattern(tensor.name, pattern); });
    if (kept) return {&tensor, tensor.type.value_or(BlockType::f32), TypeReason::kept};
    if (is_output && !options.pure && !block_format(options.type).is_plain() && options.type != BlockType::q8_0) {
      wanted = rows_divide(BlockType::q6_k, row) ? BlockType::q6_k : BlockType::q8_0;
      reason = TypeReason::output;
    }
  }
  const BlockType type = fitting(wanted, row);
  return {&tensor, type, type == wanted ? reason : TypeReason::rows};
}

}  // namespace

std::vector<TensorPlan> plan_quantisation(const TensorSource& model, const QuantiseOptions& options) {
  if (!model.gguf())
    throw FileError(fmt::format("{}: no GGUF file; turn it into one first: weft convert", model.path().string()));
  const bool tied = model.find("output.weight") == nullptr;
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
    plan.push_back(plan_of(tensor, options, rule, tensor.name == (tied ? "token_embd.weight" : "output.weight")));
  }
  for (std::size_t i = 0; i < matched.size(); ++i)
    if (matched[i] == 0)
      throw UsageError(fmt::format("the pattern {} matches no tensor of {}; weft inspect lists their names",
                                   quote(options.rules[i].pattern), model.path().string()));
  return plan;
}

std::vector<TensorPlan> quantise_model(const TensorSource& model, const std::filesystem::path& out,
                                       const QuantiseOptions& options) {
  if (!block_format(options.type).can_quantise())
    throw UsageError(
        fmt::format("{} takes no rounded values; choose one of {}", name_of(options.type), block_format_list(true)));
  const std::vector<TensorPlan> plan = plan_quantisation(model, options);
  GgufMetadata metadata = model.gguf()->metadata();
  for (const char* key : {"split.no", "split.count", "split.tensors.count"}) metadata.erase(key);
  if (const int file_type = block_format(options.type).file_type; file_type >= 0)
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
