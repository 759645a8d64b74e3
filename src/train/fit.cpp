#include "weft/train/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/philox.hpp"
#include "weft/compile.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/nn/losses.hpp"
#include "weft/ops.hpp"
#include "weft/ops/indexing.hpp"

namespace weft::train {
namespace {

Extent example_count(const char* what, const Examples& examples) {
  const auto& [x, y] = examples;
  if (!x.defined() || !y.defined() || x.rank() < 1 || y.rank() < 1 || x.dim(0) != y.dim(0) || x.dim(0) < 1)
    throw UsageError(fmt::format("{}: x {} and y {} are not the same number of examples, at least one", what,
                                 x.defined() ? x.shape().to_string() : "undefined",
                                 y.defined() ? y.shape().to_string() : "undefined"));
  return x.dim(0);
}

/// The examples in the order of an epoch.
std::vector<std::int32_t> order_of(Extent count, std::uint64_t seed, int epoch) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const philox::Key key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    const philox::Block b = philox::block(key, {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(epoch), 1,
                                                static_cast<std::uint32_t>(philox::Use::batches)});
    std::swap(order[i], order[i + static_cast<std::size_t>(philox::to_below(order.size() - i, b[0], b[1]))]);
  }
  return order;
}

/// Losses of batches and how many examples each has; computed values are read together at the end.
class LossMean {
 public:
  void add(const Tensor& loss, Extent count) {
    losses_.push_back(loss);
    counts_.push_back(static_cast<double>(count));
  }
  double value() const {
    const std::vector<float> losses = cast(stack(losses_, 0), DType::f32).to_vector<float>();
    double total = 0, examples = 0;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      total += static_cast<double>(losses[i]) * counts_[i];
      examples += counts_[i];
    }
    return total / examples;
  }

 private:
  std::vector<Tensor> losses_;
  std::vector<double> counts_;
};

/// Puts a module into a mode, and back.
class Mode {
 public:
  Mode(nn::Module& module, bool training) : module_(module), before_(module.is_training()) { module.train(training); }
  ~Mode() { module_.train(before_); }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;

 private:
  nn::Module& module_;
  bool before_;
};

double loss_to_judge(const EpochReport& report) { return report.validation_loss.value_or(report.loss); }

}  // namespace

double History::final_loss() const {
  if (epochs.empty()) throw UsageError("history: there are no epochs");
  return loss_to_judge(epochs.back());
}

std::optional<double> History::seconds_to(double loss) const {
  for (const EpochReport& report : epochs)
    if (loss_to_judge(report) <= loss) return report.seconds;
  return std::nullopt;
}

Loss loss_named(std::string_view name) {
  if (name == "mse") return [](const Tensor& output, const Tensor& y) { return nn::mse(output, y); };
  if (name == "cross_entropy")
    return [](const Tensor& output, const Tensor& y) { return nn::cross_entropy(output, y); };
  throw UsageError(fmt::format("loss \"{}\": not mse or cross_entropy", name));
}

double mean_loss(nn::Module& module, const Forward& forward, const Loss& loss, const Examples& examples, Extent batch) {
  const Extent count = example_count("mean loss", examples);
  if (batch < 1) throw UsageError(fmt::format("mean loss: the batch is {}", batch));
  const Mode evaluates(module, false);
  LossMean mean;
  for (Extent first = 0; first < count; first += batch) {
    const Extent n = std::min(batch, count - first);
    const Tensor value = loss(forward(narrow(examples.x, 0, first, n)), narrow(examples.y, 0, first, n));
    mean.add(detach(value).eval(), n);
  }
  return mean.value();
}

History fit(nn::Module& module, const Forward& forward, const Loss& loss, optim::Optimizer& optimizer,
            const Examples& examples, const FitOptions& options) {
  const Extent count = example_count("fit", examples);
  if (options.epochs < 1 || options.batch < 1)
    throw UsageError(
        fmt::format("fit: {} epochs with batches of {}; each is at least 1", options.epochs, options.batch));
  const bool validates = options.validation.x.defined() || options.validation.y.defined();
  if (validates) example_count("fit: validation", options.validation);

  const Mode trains(module, true);
  auto step = compile([&](const Tensor& x, const Tensor& y, const Tensor& chosen) {
    const Tensor value = loss(forward(index_select(x, 0, chosen)), index_select(y, 0, chosen));
    if (value.numel() != 1)
      throw ShapeError(fmt::format("fit: the loss is {}, not one number", value.shape().to_string()));
    optimizer.step(grad(value, optimizer.parameters()));
    return reshape(value, {});
  });

  History history;
  for (const Variable& parameter : optimizer.parameters())
    history.parameter_bytes += bytes_of(parameter.dtype(), static_cast<std::size_t>(parameter.numel()));
  const auto begin = std::chrono::steady_clock::now();
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const std::vector<std::int32_t> order = order_of(count, options.seed, epoch);
    LossMean mean;
    for (Extent first = 0; first < count; first += options.batch) {
      if (options.stop.stop_requested()) return history;
      const Extent n = std::min(options.batch, count - first);
      const Tensor chosen = tensor_from_bytes(order.data() + first, {n}, DType::i32, examples.x.device());
      mean.add(step(examples.x, examples.y, chosen), n);
    }
    EpochReport report{epoch, mean.value()};
    if (validates) report.validation_loss = mean_loss(module, forward, loss, options.validation, options.batch);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    history.epochs.push_back(report);
    if (options.on_epoch && !options.on_epoch(report)) break;
    if (options.loss_target && loss_to_judge(report) <= *options.loss_target) break;
  }
  return history;
}

std::string comparison_table(std::span<const std::pair<std::string, History>> methods,
                             std::span<const double> milestones) {
  std::size_t width = 6;
  for (const auto& [name, history] : methods) width = std::max(width, name.size());
  std::string text = fmt::format("{:<{}}  {:>10}  {:>9}  {:>12}", "method", width, "loss", "seconds", "bytes");
  for (const double milestone : milestones) text += fmt::format("  {:>11}", fmt::format("s to {:.3g}", milestone));
  text += "\n";
  for (const auto& [name, history] : methods) {
    text += fmt::format("{:<{}}  {:>10.4g}  {:>9.3f}  {:>12}", name, width, history.final_loss(),
                        history.epochs.back().seconds, history.parameter_bytes);
    for (const double milestone : milestones) {
      const std::optional<double> seconds = history.seconds_to(milestone);
      text += fmt::format("  {:>11}", seconds ? fmt::format("{:.3f}", *seconds) : "-");
    }
    text += "\n";
  }
  return text;
}

}  // namespace weft::train
