#include "weft/grid/observe.hpp"

#include <algorithm>
#include <chrono>

#include "grid/sources.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::grid {
namespace {

constexpr double kActiveAbove = 1e-6;

/// The statistics of all values, computed in one run.
std::vector<Statistics> statistics_of(const std::vector<Tensor>& values) {
  std::vector<Tensor> numbers, counts;
  for (const Tensor& value : values) {
    if (value.numel() == 0) {
      numbers.push_back(zeros({3}, DType::f32, value.device()));
      counts.push_back(zeros({}, DType::i32, value.device()));
      continue;
    }
    const Tensor x = cast(value, DType::f32);
    numbers.push_back(stack({mean(x), amax(x), amin(x)}, 0));
    counts.push_back(sum(cast(elementwise("abs", {x}) > kActiveAbove, DType::i32)));
  }
  if (values.empty()) return {};
  const Tensor all = stack(numbers, 0), active = stack(counts, 0);
  eval(all, active);
  const std::vector<float> n = all.to_vector<float>();
  const std::vector<std::int32_t> c = active.to_vector<std::int32_t>();
  std::vector<Statistics> result;
  for (std::size_t i = 0; i < values.size(); ++i)
    result.push_back({n[3 * i], n[3 * i + 1], n[3 * i + 2], c[i], values[i].numel()});
  return result;
}

void check_observers(std::span<Observer* const> observers) {
  for (const Observer* observer : observers)
    if (!observer) throw UsageError("observe: an observer is null");
}

Event event_of(const LayerPass& layer, const Statistics& statistics, const ObserveOptions& options) {
  return {layer.path, layer.module->layer().type, statistics, options.step, options.model};
}

}  // namespace

Value to_value(const Event& event) {
  const Statistics& s = event.statistics;
  return Value::object({{"path", event.path},
                        {"type", name_of(event.type)},
                        {"mean", s.mean},
                        {"max", s.max},
                        {"min", s.min},
                        {"active", s.active},
                        {"total", s.total},
                        {"step", event.step},
                        {"model", event.model}});
}

void observe(const Pass& pass, std::span<Observer* const> observers, const ObserveOptions& options) {
  check_observers(observers);
  std::vector<Tensor> results;
  for (const LayerPass& layer : pass.layers) results.push_back(layer.after);
  const std::vector<Statistics> statistics = statistics_of(results);
  for (std::size_t i = 0; i < results.size(); ++i)
    for (Observer* observer : observers) observer->on_forward(event_of(pass.layers[i], statistics[i], options));
}

void observe_backward(const Pass& pass, const Tensor& loss, std::span<Observer* const> observers,
                      const ObserveOptions& options) {
  check_observers(observers);
  std::vector<Tensor> results;
  for (const LayerPass& layer : pass.layers) results.push_back(layer.after);
  const std::vector<Statistics> statistics = statistics_of(grad(loss, results));
  for (std::size_t i = results.size(); i-- > 0;)
    for (Observer* observer : observers) observer->on_backward(event_of(pass.layers[i], statistics[i], options));
}

WindowMeans::WindowMeans(std::size_t window) : window_(window) {
  if (window < 1) throw UsageError("window means: the window is 0; it holds at least one pass");
}

void WindowMeans::add(Window& window, const Statistics& statistics) const {
  window.push_back(statistics);
  if (window.size() > window_) window.erase(window.begin());
}

std::map<std::string, Statistics> WindowMeans::means(const std::map<std::string, Window>& windows) {
  std::map<std::string, Statistics> result;
  for (const auto& [path, window] : windows) {
    const auto average = [&](auto member) {
      double total = 0;
      for (const Statistics& s : window) total += static_cast<double>(s.*member);
      return total / static_cast<double>(window.size());
    };
    result[path] = {average(&Statistics::mean), average(&Statistics::max), average(&Statistics::min),
                    static_cast<Extent>(average(&Statistics::active)),
                    static_cast<Extent>(average(&Statistics::total))};
  }
  return result;
}

std::vector<LayerTime> time_layers(const Network& network, const Tensor& x, int repeats) {
  if (repeats < 1) throw UsageError("time_layers: give at least one repeat");
  std::vector<LayerTime> times;
  std::vector<Tensor> inputs, outputs;
  const Description& d = network.description();
  for (std::size_t i = 0; i < d.layers.size(); ++i) {
    const Layer& layer = d.layers[i];
    const std::ptrdiff_t source = source_in_pass(d, i);
    const Tensor input = source < 0 ? x : outputs[static_cast<std::size_t>(source)];
    const Tensor skip = source < 0 ? Tensor() : inputs[static_cast<std::size_t>(source)];
    inputs.push_back(layer.disabled ? skip : input);
    if (layer.disabled) {
      outputs.push_back(input);
      continue;
    }
    const bool has_skip = skip.defined();
    auto run = compile([&network, i, has_skip](const Tensor& in, const Tensor& before) {
      return network.run_layer(i, in, has_skip ? before : Tensor());
    });
    const auto once = [&] { return run(input, has_skip ? skip : input).eval(); };
    outputs.push_back(once());
    std::vector<double> seconds;
    for (int n = 0; n < repeats; ++n) {
      const auto begin = std::chrono::steady_clock::now();
      once();
      seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
    times.push_back({to_string(d.coordinate(i)), layer.type, seconds[static_cast<std::size_t>(repeats) / 2]});
  }
  return times;
}

}  // namespace weft::grid
