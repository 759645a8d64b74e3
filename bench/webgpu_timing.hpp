// Times rendered kernels on a WebGPU device: many dispatches a submission, the median of several, after a warm-up.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

#include "backend/webgpu/command_sequence.hpp"
#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu::bench {

/// Buffers of f32 drawn from [-1, 1) (or i32 below `index_below`), one for each size.
inline std::vector<std::shared_ptr<Buffer>> make_buffers(const std::shared_ptr<Device>& device,
                                                         const std::vector<Extent>& counts, Extent index_below = 0) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::minstd_rand random(1);
  for (std::size_t b = 0; b < counts.size(); ++b) {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(counts[b]));
    for (std::uint32_t& word : words) {
      const auto draw = static_cast<float>(random()) / static_cast<float>(std::minstd_rand::max());
      word = index_below > 0 && b == 0 ? static_cast<std::uint32_t>(draw * 0.999f * static_cast<float>(index_below))
                                       : std::bit_cast<std::uint32_t>(draw * 2 - 1);
    }
    buffers.push_back(Buffer::create(device, words.size() * 4, "operand"));
    buffers.back()->upload(0, words.data(), words.size() * 4);
  }
  return buffers;
}

inline Recording record(const std::shared_ptr<Device>& device, const std::vector<std::shared_ptr<Buffer>>& buffers,
                        const Rendered& rendered, int repeats) {
  Recording recording;
  for (const auto& buffer : buffers) recording.slots.push_back({buffer});
  for (std::uint64_t bytes : rendered.scratch_bytes)
    recording.slots.push_back({Buffer::create(device, bytes, "scratch")});
  std::vector<Dispatch> commands;
  for (const RenderedDispatch& dispatch : rendered.dispatches) {
    Shader shader{dispatch.name, dispatch.shader.text(), {}};
    Dispatch command{
        dispatch.name, static_cast<int>(recording.shaders.size()), {}, fold_workgroups(dispatch.workgroups)};
    for (const BoundRange& range : dispatch.bindings) {
      shader.read_only.push_back(!range.written);
      command.bindings.push_back({range.buffer, range.offset, range.bytes});
    }
    command.repeats = dispatch.repeats;
    recording.shaders.push_back(std::move(shader));
    commands.push_back(std::move(command));
  }
  for (int i = 0; i < repeats; ++i)
    for (const Dispatch& command : commands) recording.commands.emplace_back(command);
  return recording;
}

/// Microseconds of one run of the rendered kernel.
inline double microseconds(const std::shared_ptr<Device>& device, const std::vector<std::shared_ptr<Buffer>>& buffers,
                           const Rendered& rendered) {
  using Clock = std::chrono::steady_clock;
  const auto time = [&](CommandSequence& program) {
    const auto start = Clock::now();
    program.run({});
    device->synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  // Clocks idle low, and while shaders are compiled: warm up before timing.
  const auto warm_up = [&](CommandSequence& program) {
    for (const auto until = Clock::now() + std::chrono::milliseconds(150); Clock::now() < until;) time(program);
  };
  CommandSequence once(device, record(device, buffers, rendered, 1));
  warm_up(once);
  const double rough = std::max(1e-6, time(once));
  const int repeats = std::clamp(static_cast<int>(0.02 / rough), 4, 2000);
  CommandSequence many(device, record(device, buffers, rendered, repeats));
  warm_up(many);
  std::vector<double> times;
  for (int i = 0; i < 7; ++i) times.push_back(time(many));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] / repeats * 1e6;
}

}  // namespace weft::webgpu::bench
