// What layers do: statistics of their results and gradients for observers, and times.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weft/grid/network.hpp"

namespace weft::grid {

/// Numbers about the elements of a tensor. `active` counts those whose magnitude is above 1e-6.
struct Statistics {
  double mean = 0, max = 0, min = 0;
  Extent active = 0, total = 0;
};

/// What an observer learns of one layer in one pass: the statistics of its result, or of the gradient of its result.
struct Event {
  std::string path;  ///< as in LayerPass
  LayerType type = LayerType::dense;
  Statistics statistics;
  std::int64_t step = 0;
  std::string model;
};
/// As JSON, for a log or a request.
Value to_value(const Event& event);

/// Gets one event for each layer and pass.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_forward(const Event&) {}
  virtual void on_backward(const Event&) {}
};

struct ObserveOptions {
  std::int64_t step = 0;  ///< goes into the events
  std::string model;
};
/// Tells the observers about every layer of a pass, in its order. Computes the statistics of all layers in one run, so it must be
/// outside of compiled functions.
/// Errors  UsageError: a null observer
void observe(const Pass& pass, std::span<Observer* const> observers, const ObserveOptions& options = {});
/// The same for the gradients of `loss` with respect to what each layer gave, from the last layer to the first.
/// Errors  as `grad`
void observe_backward(const Pass& pass, const Tensor& loss, std::span<Observer* const> observers,
                      const ObserveOptions& options = {});

/// Means over windows of events: for each layer, forward and backward, those of the last `window` passes.
class WindowMeans : public Observer {
 public:
  /// Errors: UsageError for a window below 1.
  explicit WindowMeans(std::size_t window);
  void on_forward(const Event& event) override { add(forward_[event.path], event.statistics); }
  void on_backward(const Event& event) override { add(backward_[event.path], event.statistics); }

  /// By path; the counts are means too.
  std::map<std::string, Statistics> forward() const { return means(forward_); }
  std::map<std::string, Statistics> backward() const { return means(backward_); }

 private:
  using Window = std::vector<Statistics>;
  void add(Window& window, const Statistics& statistics) const;
  static std::map<std::string, Statistics> means(const std::map<std::string, Window>& windows);

  std::size_t window_;
  std::map<std::string, Window> forward_, backward_;
};

/// The time of a layer of the grid, alone and compiled.
struct LayerTime {
  std::string path;
  LayerType type = LayerType::dense;
  double seconds = 0;  ///< the median of the repeats
};
/// Runs every enabled layer of the grid `repeats` times on what it gets when the network reads x.
/// Errors  UsageError: no repeats. Others as a pass
std::vector<LayerTime> time_layers(const Network& network, const Tensor& x, int repeats = 10);

}  // namespace weft::grid
