// Updates of optimisers by name. Optimisers own their state, so such an op makes several updates with the same gradient,
// starting from new state.
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/optim/table.hpp"

namespace weft::optim {
namespace {

using graph::Arguments;
using graph::AttributeSpec;
using graph::AttributeType;
using graph::OpRow;
using graph::Tensors;

AttributeSpec attribute_of(const OptionInfo& option) {
  AttributeSpec spec{.name = option.name, .doc = option.doc};
  if (const bool* flag = std::get_if<bool>(&option.standard)) {
    spec.type = AttributeType::boolean;
    spec.default_value = *flag;
  } else if (const Extent* whole = std::get_if<Extent>(&option.standard)) {
    spec.type = AttributeType::integer;
    spec.default_value = *whole;
    spec.least = 0;
    spec.most = 100;
  } else {
    spec.default_value = std::get<double>(option.standard);
  }
  if (option.name == "learning_rate") spec.aliases = {"lr"};
  if (option.name == "epsilon") spec.aliases = {"eps"};
  return spec;
}

Tensors updated(const RuleInfo& rule, const Arguments& a) {
  OptionValues options;
  for (const OptionInfo& option : rule.options) {
    if (std::holds_alternative<bool>(option.standard))
      options[option.name] = a.boolean(option.name);
    else if (std::holds_alternative<Extent>(option.standard))
      options[option.name] = a.integer(option.name);
    else
      options[option.name] = a.number(option.name);
  }
  NoGrad no_grad;
  Variable parameter(a.input(0), "parameter");
  const auto optimizer =
      make_optimizer(rule.name, std::vector<nn::NamedParameter>{{"parameter", parameter, true}}, std::move(options));
  for (Extent i = 0; i < a.integer("steps"); ++i) optimizer->step(std::vector<Tensor>{a.input(1)});
  return {parameter.value().eval()};
}

const std::vector<OpRow>& update_rows() {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> list;
    for (const RuleInfo& rule : rules()) {
      std::vector<AttributeSpec> attributes;
      for (const OptionInfo& option : rule.options) attributes.push_back(attribute_of(option));
      attributes.push_back({.name = "steps",
                            .type = AttributeType::integer,
                            .default_value = Extent{1},
                            .doc = "number of updates, all with the same gradient",
                            .least = 0,
                            .most = 10000});
      list.push_back({.name = rule.name,
                      .family = "update",
                      .inputs = {{"parameter", ops::DTypes::floats}, {"gradient", ops::DTypes::floats}},
                      .attributes = std::move(attributes),
                      .result = "that of parameter",
                      .differentiable = false,
                      .doc = "The parameter after updates by " + rule.title + ": " + rule.doc + ".",
                      .cases = {{"three updates", {{{6, 7}}, {{6, 7}}}, {{"steps", Extent{3}}}}},
                      .errors = {{"negative steps", {{{6}}, {{6}}}, {{"steps", Extent{-1}}}, "attribute steps is -1"}},
                      .apply = [&rule](const Arguments& a) { return updated(rule, a); }});
    }
    return list;
  }();
  return rows;
}

}  // namespace

graph::OpRows update_family() {
  graph::OpRows list;
  for (const OpRow& row : update_rows()) list.push_back(&row);
  return list;
}

}  // namespace weft::optim
