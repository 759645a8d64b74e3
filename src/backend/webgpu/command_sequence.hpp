// A recorded list of dispatches and copies, replayed at little cost to the host.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "backend/contract.hpp"
#include "backend/webgpu/buffer.hpp"
#include "backend/webgpu/pipeline.hpp"
#include "backend/webgpu/workgroups.hpp"

namespace weft::webgpu {

/// The buffer of a binding: the program's own, or the caller's at each run.
struct Slot {
  std::shared_ptr<Buffer> buffer;  // own, or
  int external = -1;               // position among the externals of a run
};

struct Range {
  int slot = 0;
  std::uint64_t offset = 0;  // bindings: a multiple of Limits::offset_alignment; copies: of 4
  std::uint64_t bytes = 0;
};

struct Dispatch {
  std::string label;
  int shader = 0;
  std::vector<Range> bindings;
  Workgroups workgroups;
  std::vector<std::uint32_t> immediates;  // Shader::immediate_bytes / 4 words
  std::uint32_t repeats = 1;              // it runs so many times, each time after the one before
};
struct Copy {
  Range from, to;  // of equal size, in different buffers
};
struct Clear {
  Range range;
};
using Command = std::variant<Dispatch, Copy, Clear>;

struct Recording {
  std::vector<Slot> slots;
  std::vector<Shader> shaders;
  std::vector<Command> commands;
};

struct CommandSequenceOptions {
  /// Number of dispatches in the first submission (few, so that the device starts early) and in the others.
  std::size_t first_chunk = 16, chunk = 128;
};

/// Compiles the shaders and makes bind groups once; a run only replays. Bind groups of externals are kept, so callers that
/// reuse the same buffers (or alternate between a few sets) pay once.
class CommandSequence {
 public:
  /// Throws InternalError for a recording that breaks a rule of WebGPU (the message names the dispatch), DeviceError for one
  /// over a limit.
  CommandSequence(std::shared_ptr<Device> device, Recording recording, const CommandSequenceOptions& options = {});
  CommandSequence(const CommandSequence&) = delete;
  ~CommandSequence();

  /// Submits everything and returns; the device may still work. Externals must be webgpu::Buffers of this device.
  void run(std::span<const backend::BufferPtr> externals);
  /// Runs once with a pass and two timestamps for each dispatch, which is slower than `run`; times in the order of the
  /// dispatches. Empty if the adapter has no timestamps.
  std::vector<backend::KernelTime> profile(std::span<const backend::BufferPtr> externals);
  /// Replaces the immediates of the dispatch `command` (its position in Recording::commands) for later runs.
  void set_immediates(std::size_t command, std::span<const std::uint32_t> words);

  const std::vector<Shader>& shaders() const { return recording_.shaders; }
  std::size_t external_count() const { return external_ids_.size(); }
  std::size_t bind_group_count() const { return groups_.size(); }

 private:
  using Group = std::shared_ptr<const BindGroupHandle>;
  // A command with resolved pipeline and bindings.
  struct BoundCommand {
    const Dispatch* dispatch = nullptr;  // null: a copy (`from` and `to` set) or a clear (`to` alone)
    WGPUComputePipeline pipeline = nullptr;
    WGPUBindGroup group = nullptr;
    Group group_owner;
    bool has_externals = false;
    Range from, to;
    WGPUBuffer from_buffer = nullptr, to_buffer = nullptr;
  };

  void check(const Dispatch& dispatch) const;
  void take_externals(std::span<const backend::BufferPtr> externals);
  void resolve(BoundCommand& bound, const Command& command);
  const Buffer& buffer_of(const Range& range, const std::string& label) const;
  Group group_of(const Dispatch& dispatch, const Pipeline& pipeline);
  void drop_unused_groups();
  void encode_transfer(WGPUCommandEncoder encoder, const BoundCommand& bound) const;
  void submit_timed(std::span<const BoundCommand* const> commands, WGPUQuerySet queries, WGPUBuffer resolved);

  std::shared_ptr<Device> device_;
  Recording recording_;
  CommandSequenceOptions options_;
  std::vector<PipelinePtr> pipelines_;
  std::vector<BoundCommand> bound_;
  std::vector<std::uint64_t> external_ids_;             // of the buffers that the commands use now; 0: none yet
  std::vector<const Buffer*> externals_;                // valid during a run only
  std::map<std::vector<std::uint64_t>, Group> groups_;  // by layout and (buffer id, offset, bytes) of each binding
};

}  // namespace weft::webgpu
