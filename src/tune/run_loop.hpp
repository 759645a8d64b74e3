// The loop of a run, its measurements and its files, for whatever trains.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "base/json.hpp"
#include "weft/nn/state.hpp"
#include "weft/tune.hpp"

namespace weft::tune {

/// What a run trains, as its loop sees it.
class Trainee {
 public:
  virtual ~Trainee() = default;
  virtual RunStart start() const = 0;
  virtual double learning_rate() const = 0;  ///< the largest one
  /// What decides the numbers of the run, beside what the request says of every run.
  virtual Json settings() const = 0;
  /// Bytes of a step as planned, and of all else on the device.
  virtual std::uint64_t planned_bytes() = 0;
  virtual std::uint64_t held_bytes() const = 0;
  /// Called once for a run, before its first step.
  virtual void prepare(const std::stop_token&) {}
  /// Makes the update of that number, from 0.
  virtual Tuner::StepResult step(std::int64_t number, double rate) = 0;
  virtual std::int64_t tokens() const = 0;  ///< that steps have seen
  virtual bool can_measure() const = 0;
  virtual Measured measure() = 0;
  virtual double loss_scale() const = 0;
  virtual nn::StateDict state_dict() const = 0;
  virtual void load_state_dict(nn::StateDict& state) = 0;
  /// What is of use without the run: an adapter, or a model.
  virtual void save(const std::filesystem::path& path) const = 0;
  virtual void save_last(const std::filesystem::path& out) const = 0;
  virtual void finish(const std::filesystem::path&) const {}
};

/// Errors: as `run`.
RunReport run_loop(const Request& request, const Observer& observer, const std::stop_token& stop,
                   const std::function<std::unique_ptr<Trainee>()>& make);

/// The run of a text encoder, and what it would take.
RunReport run_encoder(const Request& request, const Observer& observer, const std::stop_token& stop);
RunNeed encoder_run_need(const Request& request);

/// `Request::device_memory`, or what the CPU has free; nothing for a GPU.
std::optional<std::uint64_t> available_for(const Request& request);

}  // namespace weft::tune
