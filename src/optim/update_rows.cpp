// Updates of optimisers by name. Optimisers own their state, so such an op makes several updates with the same gradient,
// starting from new state.
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/optim/optimizer.hpp"

namespace weft::optim {
namespace {

using graph::Arguments;
using graph::AttributeSpec;
using graph::AttributeType;
using graph::OpRow;
using graph::Tensors;

AttributeSpec number(std::string name, double fallback, std::string doc, std::vector<std::string> aliases = {}) {
  return {.name = std::move(name), .default_value = fallback, .doc = std::move(doc), .aliases = std::move(aliases)};
}
AttributeSpec flag(std::string name, bool fallback, std::string doc) {
  return {.name = std::move(name), .type = AttributeType::boolean, .default_value = fallback, .doc = std::move(doc)};
}
AttributeSpec steps() {
  return {.name = "steps",
          .type = AttributeType::integer,
          .default_value = Extent{1},
          .doc = "number of updates, all with the same gradient",
          .least = 0,
          .most = 10000};
}
std::vector<graph::InputSpec> pair() { return {{"parameter", ops::DTypes::floats}, {"gradient", ops::DTypes::floats}}; }

template <class Optimizer, class Options>
Tensors updated(const Arguments& a, const Options& options) {
  NoGrad no_grad;
  Variable parameter(a.input(0), "parameter");
  Optimizer optimizer(std::vector<nn::NamedParameter>{{"parameter", parameter, true}}, options);
  for (Extent i = 0; i < a.integer("steps"); ++i) optimizer.step(std::vector<Tensor>{a.input(1)});
  return {parameter.value().eval()};
}

const std::vector<OpRow>& update_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "sgd",
       .family = "update",
       .inputs = pair(),
       .attributes = {number("learning_rate", 1e-2, "step length", {"lr"}),
                      number("momentum", 0, "share of the previous direction that is kept"),
                      number("dampening", 0, "share of the gradient that is left out of the direction"),
                      flag("nesterov", false, "looks ahead"),
                      number("weight_decay", 0, "times the parameter, added to the gradient"),
                      flag("maximize", false, "climbs"), steps()},
       .result = "that of parameter",
       .differentiable = false,
       .doc = "The parameter after updates by stochastic gradient descent.",
       .cases = {{"three updates", {{{6, 7}}, {{6, 7}}}, {{"steps", Extent{3}}}}},
       .errors = {{"negative steps", {{{6}}, {{6}}}, {{"steps", Extent{-1}}}, "attribute steps is -1"}},
       .apply =
           [](const Arguments& a) {
             return updated<SGD>(a, SgdOptions{.learning_rate = a.number("learning_rate"),
                                               .momentum = a.number("momentum"),
                                               .dampening = a.number("dampening"),
                                               .nesterov = a.boolean("nesterov"),
                                               .weight_decay = a.number("weight_decay"),
                                               .maximize = a.boolean("maximize")});
           }},
      {.name = "adam",
       .family = "update",
       .inputs = pair(),
       .attributes = {number("learning_rate", 1e-3, "step length", {"lr"}),
                      number("beta_1", 0.9, "decay rate of the mean"),
                      number("beta_2", 0.999, "decay rate of the mean square"),
                      number("epsilon", 1e-8, "added to the root of the mean square", {"eps"}),
                      number("weight_decay", 0, "times the parameter, added to the gradient"), steps()},
       .result = "that of parameter",
       .differentiable = false,
       .doc = "The parameter after updates by Adam.",
       .cases = {{"three updates", {{{6, 7}}, {{6, 7}}}, {{"steps", Extent{3}}}}},
       .errors = {{"negative steps", {{{6}}, {{6}}}, {{"steps", Extent{-1}}}, "attribute steps is -1"}},
       .apply =
           [](const Arguments& a) {
             return updated<Adam>(a, AdamOptions{.learning_rate = a.number("learning_rate"),
                                                 .beta_1 = a.number("beta_1"),
                                                 .beta_2 = a.number("beta_2"),
                                                 .epsilon = a.number("epsilon"),
                                                 .weight_decay = a.number("weight_decay")});
           }},
      {.name = "adamw",
       .family = "update",
       .inputs = pair(),
       .attributes = {number("learning_rate", 1e-3, "step length", {"lr"}),
                      number("beta_1", 0.9, "decay rate of the mean"),
                      number("beta_2", 0.999, "decay rate of the mean square"),
                      number("epsilon", 1e-8, "added to the root of the mean square", {"eps"}),
                      number("weight_decay", 0.01, "decoupled decay"), steps()},
       .result = "that of parameter",
       .differentiable = false,
       .doc = "The parameter after updates by AdamW.",
       .cases = {{"three updates", {{{6, 7}}, {{6, 7}}}, {{"steps", Extent{3}}}}},
       .errors = {{"negative steps", {{{6}}, {{6}}}, {{"steps", Extent{-1}}}, "attribute steps is -1"}},
       .apply = [](const Arguments& a) {
         return updated<AdamW>(a, AdamWOptions{.learning_rate = a.number("learning_rate"),
                                               .beta_1 = a.number("beta_1"),
                                               .beta_2 = a.number("beta_2"),
                                               .epsilon = a.number("epsilon"),
                                               .weight_decay = a.number("weight_decay")});
       }}};
  return rows;
}

}  // namespace

graph::OpRows update_family() {
  graph::OpRows list;
  for (const OpRow& row : update_rows()) list.push_back(&row);
  return list;
}

}  // namespace weft::optim
