#include "graph/autocast.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {
namespace graph {
namespace {

struct Rule {
  std::string_view name;
  AutocastRule rule;
};

constexpr AutocastRule kNarrow = AutocastRule::narrow, kWide = AutocastRule::wide, kAsGiven = AutocastRule::as_given;

constexpr Rule kFamilies[] = {
    {"product", kNarrow},      // sums inside are f32
    {"convolution", kNarrow},  // the same
    {"norm", kWide},           // statistics and exponentials
    {"loss", kWide},           // logarithms, and sums over the batch
    {"reduction", kWide},      // a narrow sum of many would overflow f16 and round bf16 to two digits
    {"scan", kWide},
};

// Ops that differ from their family, and elementwise ops whose results leave the range of f16 or lose their digits there.
constexpr Rule kOps[] = {
    {"attention", kNarrow},
    {"fused_attention", kNarrow},
    {"scaled_dot_product_attention", kNarrow},
    {"exp", kWide},
    {"exp2", kWide},
    {"expm1", kWide},
    {"log", kWide},
    {"log1p", kWide},
    {"log2", kWide},
    {"log10", kWide},
    {"logaddexp", kWide},
    {"logaddexp2", kWide},
    {"xlogy", kWide},
    {"logit", kWide},
    {"log_sigmoid", kWide},
    {"softplus", kWide},
    {"pow", kWide},
    {"square", kWide},
    {"squared_difference", kWide},
    {"hypot", kWide},
    {"ldexp", kWide},
    {"reciprocal", kWide},
    {"rsqrt", kWide},
    {"sinh", kWide},
    {"cosh", kWide},
    {"tan", kWide},
    {"acos", kWide},
    {"asin", kWide},
    {"acosh", kWide},
    {"asinh", kWide},
    {"atanh", kWide},
};

// What is added to f32 sums before they are rounded, and so need not be rounded itself.
bool stays_wide(const InputSpec& input) {
  return input.name == "bias" || input.name == "mask" || input.name == "sinks" || input.name == "slopes";
}

bool is_half(DType type) { return type == DType::f16 || type == DType::bf16; }
bool takes_part(DType type) { return type == DType::f32 || is_half(type); }

}  // namespace

DType& autocast_state() {
  thread_local DType type = DType::f32;
  return type;
}

AutocastRule autocast_rule_of(std::string_view op, std::string_view family) {
  for (const Rule& rule : kOps)
    if (rule.name == op) return rule.rule;
  for (const Rule& rule : kFamilies)
    if (rule.name == family) return rule.rule;
  return kAsGiven;
}

NodeRef autocast_input(AutocastRule rule, const NodeRef& x) {
  if (rule == kAsGiven || !takes_part(x->type) || x->packed) return x;
  return cast(x, rule == kNarrow ? autocast_state() : DType::f32);
}

DType autocast_inputs(const OpRow& row, Tensors& inputs) {
  const AutocastRule rule = autocast_rule_of(row.name, row.family);
  const auto leaves_all = [](const Tensor& x) {
    return x.defined() && (has_packed_layout(*x.node()) || (is_float(x.dtype()) && !takes_part(x.dtype())));
  };
  if (rule == kAsGiven || std::any_of(inputs.begin(), inputs.end(), leaves_all)) return DType::f32;
  bool any = false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || (rule == kNarrow && stays_wide(row.inputs[std::min(i, row.inputs.size() - 1)])))
      continue;
    any |= takes_part(inputs[i].dtype());
    inputs[i] = Tensor(autocast_input(rule, inputs[i].node()));
  }
  return any && rule == kNarrow ? autocast_state() : DType::f32;
}

}  // namespace graph

Autocast::Autocast(DType type, Where where) : before_(graph::autocast_state()) {
  if (type != DType::f32 && !graph::is_half(type))
    throw UsageError(
        fmt::format("Autocast: the type is {}; give f16 or bf16, or f32 to switch it off\n  called at {}:{} ({})",
                    name_of(type), where.file_name(), where.line(), where.function_name()));
  graph::autocast_state() = type;
}
Autocast::~Autocast() { graph::autocast_state() = before_; }

DType autocast_type() { return graph::autocast_state(); }

AutocastRule autocast_rule(std::string_view op) {
  const graph::OpRow& row = graph::op_row(op);
  return graph::autocast_rule_of(row.name, row.family);
}

}  // namespace weft
