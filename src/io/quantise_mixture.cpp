#include "io/quantise_mixture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

using T = BlockType;
using R = TensorRole;
using L = LayerSet;
using M = ModelSet;

constexpr MixtureRule kQ2K[] = {{R::attention_values, T::q4_k, L::all, M::grouped},
                                {R::attention_values, T::q3_k},
                                {R::ffn_down, T::q3_k},
                                {R::attention_output, T::q5_k, L::all, M::with_8_experts},
                                {R::attention_output, T::q3_k}};
constexpr MixtureRule kQ2KS[] = {{R::attention_values, T::q4_k, L::all, M::grouped},
                                 {R::ffn_down, T::q4_k, L::first_eighth}};
constexpr MixtureRule kQ3KS[] = {{R::attention_output, T::q5_k, L::all, M::with_8_experts}};
constexpr MixtureRule kQ3KM[] = {{R::attention_values, T::q5_k, L::first_2},
                                 {R::attention_values, T::q4_k},
                                 {R::ffn_down, T::q5_k, L::first_sixteenth},
                                 {R::ffn_down, T::q4_k},
                                 {R::attention_output, T::q5_k, L::all, M::with_8_experts},
                                 {R::attention_output, T::q4_k}};
constexpr MixtureRule kQ3KL[] = {{R::attention_values, T::q5_k},
                                 {R::ffn_down, T::q5_k},
                                 {R::attention_output, T::q3_k, L::all, M::with_8_experts},
                                 {R::attention_output, T::q5_k}};
constexpr MixtureRule kQ4KS[] = {{R::attention_values, T::q5_k, L::first_4},
                                 {R::ffn_down, T::q5_k, L::first_eighth},
                                 {R::attention_output, T::q5_k, L::all, M::with_8_experts}};
constexpr MixtureRule kQ4KM[] = {{R::attention_values, T::q6_k, L::outer_and_third},
                                 {R::ffn_down, T::q6_k, L::outer_and_third},
                                 {R::attention_output, T::q5_k, L::all, M::with_8_experts}};
constexpr MixtureRule kQ5KM[] = {{R::attention_values, T::q6_k, L::outer_and_third},
                                 {R::ffn_down, T::q6_k, L::outer_and_third}};
constexpr MixtureRule kIQ4[] = {{R::attention_values, T::q5_k, L::all, M::grouped},
                                {R::ffn_down, T::q5_k, L::first_eighth},
                                {R::attention_output, T::q5_k, L::all, M::with_8_experts}};
constexpr MixtureRule kMxfp4Moe[] = {{R::experts, T::mxfp4}, {R::any, T::q8_0}};

constexpr Mixture kMixtures[] = {
    {"Q2_K", T::q2_k, 10, kQ2K},     {"Q2_K_S", T::q2_k, 21, kQ2KS},  {"Q3_K_S", T::q3_k, 11, kQ3KS},
    {"Q3_K_M", T::q3_k, 12, kQ3KM},  {"Q3_K_L", T::q3_k, 13, kQ3KL},  {"Q4_K_S", T::q4_k, 14, kQ4KS},
    {"Q4_K_M", T::q4_k, 15, kQ4KM},  {"Q5_K_S", T::q5_k, 16, {}},     {"Q5_K_M", T::q5_k, 17, kQ5KM},
    {"IQ4_NL", T::iq4_nl, 25, kIQ4}, {"IQ4_XS", T::iq4_xs, 30, kIQ4}, {"MXFP4_MOE", T::mxfp4, 38, kMxfp4Moe},
    {"Q3_K", T::q3_k, 12, kQ3KM},    {"Q4_K", T::q4_k, 15, kQ4KM},    {"Q5_K", T::q5_k, 17, kQ5KM},
};

/// Rules for all mixtures: with eight experts, attention is so small a part that larger types cost little.
constexpr MixtureRule kAlways[] = {{R::attention_values, T::q8_0, L::all, M::with_8_experts},
                                   {R::attention_keys, T::q8_0, L::all, M::with_8_experts}};

bool is_in(LayerSet layers, int i, int n) {
  switch (layers) {
    case L::all: return true;
    case L::first_2: return i < 2;
    case L::first_4: return i < 4;
    case L::first_sixteenth: return i < n / 16;
    case L::first_eighth: return i < n / 8;
    case L::outer_and_third: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
  }
  return false;
}

bool is_in(ModelSet models, const MixtureModel& model) {
  switch (models) {
    case M::all: return true;
    case M::grouped: return model.queries_per_key >= 4;
    case M::with_8_experts: return model.experts == 8;
  }
  return false;
}

bool fits(const MixtureRule& rule, const MixtureModel& model, const MixtureTensor& tensor) {
  const bool role = rule.role == R::any || (rule.role == R::experts ? tensor.of_experts : rule.role == tensor.role);
  const bool by_index = tensor.role == R::attention_values;  // not every layer must have one
  return role && is_in(rule.models, model) &&
         (by_index ? is_in(rule.layers, tensor.index, tensor.of_index)
                   : is_in(rule.layers, tensor.layer, model.layers));
}

BlockType type_by_rules(const Mixture& mixture, const MixtureModel& model, const MixtureTensor& tensor) {
  for (const auto rules : {std::span<const MixtureRule>(kAlways), mixture.rules})
    for (const MixtureRule& rule : rules)
      if (fits(rule, model, tensor)) return rule.type;
  return tensor.role == R::output && mixture.type != T::q8_0 ? T::q6_k : mixture.type;
}

}  // namespace

Mixture find_mixture(std::string_view name) {
  std::string capitals(name);
  for (char& c : capitals) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const Mixture& mixture : kMixtures)
    if (mixture.name == capitals) return mixture;
  const BlockFormat* format = find_block_format(name);
  if (!format || !format->can_quantise())
    throw UsageError(
        fmt::format("{}: there is no such type to quantize to; choose one of {}", quote(name, 40), mixture_list()));
  return {format->name, format->type, format->file_type, {}};
}

std::string mixture_list() {
  std::string list = block_format_list(true);
  for (const Mixture& mixture : kMixtures)
    if (!find_block_format(mixture.name)) list += fmt::format(", {}", mixture.name);
  return list;
}

TensorRole role_of(std::string_view name) {
  constexpr std::pair<std::string_view, TensorRole> kParts[] = {
      {"attn_qkv.weight", R::attention_values},    {"attn_kv_b.weight", R::attention_values},
      {"attn_v.weight", R::attention_values},      {"attn_k.weight", R::attention_keys},
      {"attn_output.weight", R::attention_output}, {"ffn_down", R::ffn_down}};
  for (const auto& [part, role] : kParts)
    if (name.find(part) != std::string_view::npos) return role;
  return R::other;
}

BlockType type_in_mixture(const Mixture& mixture, const MixtureModel& model, const MixtureTensor& tensor) {
  const BlockType type = type_by_rules(mixture, model, tensor);
  // In models of 70B, values are an eighth of the queries, so a better type costs next to nothing.
  const bool is_coarse = type == T::q3_k || type == T::q4_k;
  return tensor.role == R::attention_values && model.is_70b && is_coarse ? T::q5_k : type;
}

}  // namespace weft::io
