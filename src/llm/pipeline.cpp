#include "llm/pipeline.hpp"

#include <algorithm>
#include <utility>

#include "runtime/devices.hpp"

namespace weft::llm::detail {

bool Pipeline::is_empty() const {
  return std::none_of(waiting_.begin(), waiting_.end(), [](const auto& moving) { return moving.has_value(); });
}

Tensor Pipeline::run(PassNumbers numbers, std::string* profile) {
  Tensor result = advance(std::move(numbers), profile);
  while (!is_empty()) result = advance(std::nullopt, profile);
  return result;
}

void Pipeline::drain() {
  while (!is_empty()) advance(std::nullopt, nullptr);
}

/// Each stage takes the pass that waits for it.
Tensor Pipeline::advance(std::optional<PassNumbers> next, std::string* profile) {
  const std::size_t count = stages_.size();
  waiting_.resize(count);
  std::vector<std::optional<Moving>> now = std::exchange(waiting_, std::vector<std::optional<Moving>>(count));
  if (next) now[0] = Moving{std::move(*next), {}, nullptr};
  Tensor result;
  for (const bool beside_host : {true, false})
    for (std::size_t s = 0; s < count; ++s) {
      Stage& stage = *stages_[s];
      if (!now[s] || stage.runs_beside_host() != beside_host) continue;
      Moving& moving = *now[s];
      Tensor given = stage.run(moving.numbers, s == 0 ? Tensor() : arrived(moving, stage.device()), profile);
      if (s + 1 == count) {
        result = std::move(given);
        continue;
      }
      auto readback =
          runtime::backend_of(stage.device()).start_download(*runtime::buffer_of(*given.node()), 0, given.numel());
      waiting_[s + 1] = Moving{std::move(moving.numbers), std::move(given), std::move(readback)};
    }
  return result;
}

Tensor Pipeline::arrived(Moving& moving, Device device) {
  const Tensor& states = moving.states;
  if (!moving.readback) return states.to(device);
  std::vector<float> host(static_cast<std::size_t>(states.numel()));
  moving.readback->finish(host.data());
  return tensor_from_bytes(host.data(), states.shape(), DType::f32, device);
}

}  // namespace weft::llm::detail
