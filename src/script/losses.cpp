// Losses of nn, with their names in C++.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/quote.hpp"
#include "script/engine.hpp"
#include "script/functions.hpp"
#include "script/modules.hpp"
#include "weft/nn/losses.hpp"

namespace weft::script {
namespace {

nn::Reduction reduction_of(Options& options) {
  const std::string word = options.text("reduction", "mean");
  if (word == "mean") return nn::Reduction::mean;
  if (word == "sum") return nn::Reduction::sum;
  if (word == "none") return nn::Reduction::none;
  throw UsageError(fmt::format("reduction is {}; it may be mean, sum or none", quote(word)));
}
Local cross_entropy(Engine& engine, JSValueConst, Arguments a) {
  engine.count_work();
  const Tensor logits = engine.tensor(at(a, 0), "crossEntropy: logits"),
               targets = engine.tensor(at(a, 1), "crossEntropy: targets");
  if (a.size() < 3) return engine.make(nn::cross_entropy(logits, targets));
  Options options(engine, at(a, 2), "nn.crossEntropy");
  nn::CrossEntropyOptions o;
  if (const Local weight = options.value("weight"); !JS_IsUndefined(weight.get()))
    o.weight = engine.tensor(weight.get(), "weight");
  options.read("labelSmoothing", o.label_smoothing);
  o.ignore_index = static_cast<int>(std::clamp<Extent>(options.integer("ignoreIndex", -100), INT32_MIN, INT32_MAX));
  o.reduction = reduction_of(options);
  options.finish();
  return engine.make(nn::cross_entropy(logits, targets, o));
}
using Loss = Tensor (*)(const Tensor&, const Tensor&, nn::Reduction, Where);
template <Loss loss>
Local simple_loss(Engine& engine, JSValueConst, Arguments a) {
  engine.count_work();
  const Tensor prediction = engine.tensor(at(a, 0), "the prediction");
  Options options(engine, at(a, 2), "a loss");
  const nn::Reduction reduction = reduction_of(options);
  options.finish();
  return engine.make(loss(prediction, engine.operand(at(a, 1), prediction, "the target"), reduction, Where::current()));
}
Local huber(Engine& engine, JSValueConst, Arguments a) {
  engine.count_work();
  const Tensor prediction = engine.tensor(at(a, 0), "the prediction");
  Options options(engine, at(a, 2), "nn.huber");
  const double delta = options.number("delta", 1);
  const nn::Reduction reduction = reduction_of(options);
  options.finish();
  return engine.make(nn::huber(prediction, engine.operand(at(a, 1), prediction, "the target"), delta, reduction));
}

}  // namespace

std::string name_of_loss(const graph::OpRow& row) {
  const std::string_view end = "_loss";
  return camel(row.name.ends_with(end) ? std::string_view(row.name).substr(0, row.name.size() - end.size())
                                       : std::string_view(row.name));
}

void define_losses(Engine& engine, JSValueConst n) {
  for (const graph::OpRow* row : graph::op_rows())
    if (row->family == "loss") engine.set(n, name_of_loss(*row).c_str(), function_of_row(engine, *row));
  // These have options of their own.
  engine.method(n, "crossEntropy", native<cross_entropy>, 2);
  engine.method(n, "mse", native<simple_loss<nn::mse>>, 2);
  engine.method(n, "l1", native<simple_loss<nn::l1>>, 2);
  engine.method(n, "binaryCrossEntropy", native<simple_loss<nn::binary_cross_entropy>>, 2);
  engine.method(n, "nll", native<simple_loss<nn::nll>>, 2);
  engine.method(n, "huber", native<huber>, 2);
}

}  // namespace weft::script
