#include "backend/webgpu/command_sequence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <typeinfo>
#include <utility>

#include "backend/webgpu/staging.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr std::size_t kTimedDispatchesMax = 2048;  // a query set holds 4096 timestamps

// WebGPU binds whole words and at least one; allocations are rounded up to 16 bytes, so this stays within them.
std::uint64_t bound_bytes(const Range& range) { return std::max<std::uint64_t>(4, (range.bytes + 3) / 4 * 4); }

bool overlap(const Range& a, const Range& b) {
  return a.offset < b.offset + bound_bytes(b) && b.offset < a.offset + bound_bytes(a);
}

bool is_empty(const Workgroups& groups) { return groups.x == 0 || groups.y == 0 || groups.z == 0; }

}  // namespace

CommandSequence::CommandSequence(std::shared_ptr<Device> device, Recording recording,
                                 const CommandSequenceOptions& options)
    : device_(std::move(device)), recording_(std::move(recording)), options_(options) {
  const std::lock_guard lock(device_->mutex());
  for (const Slot& slot : recording_.slots) {
    if ((slot.external < 0) == !slot.buffer)
      throw InternalError("webgpu: a slot of a program is neither a buffer of its own nor an external, or is both");
    if (slot.external >= static_cast<int>(external_ids_.size())) external_ids_.resize(slot.external + 1, 0);
  }
  for (const Command& command : recording_.commands)
    if (const auto* dispatch = std::get_if<Dispatch>(&command)) check(*dispatch);
  pipelines_ = device_->pipelines().compile(recording_.shaders);

  const auto is_external = [&](const Range& range) { return recording_.slots.at(range.slot).external >= 0; };
  bound_.resize(recording_.commands.size());
  for (std::size_t i = 0; i < bound_.size(); ++i) {
    BoundCommand& bound = bound_[i];
    if (const auto* dispatch = std::get_if<Dispatch>(&recording_.commands[i])) {
      bound.dispatch = dispatch;
      bound.pipeline = pipelines_[dispatch->shader]->handle.get();
      bound.has_externals = std::any_of(dispatch->bindings.begin(), dispatch->bindings.end(), is_external);
    } else if (const auto* copy = std::get_if<Copy>(&recording_.commands[i])) {
      bound.from = copy->from;
      bound.to = copy->to;
      bound.has_externals = is_external(copy->from) || is_external(copy->to);
    } else {
      bound.to = std::get<Clear>(recording_.commands[i]).range;
      bound.has_externals = is_external(bound.to);
    }
    if (!bound.has_externals) resolve(bound, recording_.commands[i]);
  }
  device_->check();
}

CommandSequence::~CommandSequence() {
  const std::lock_guard lock(device_->mutex());
  bound_.clear();
  groups_.clear();
}

void CommandSequence::check(const Dispatch& dispatch) const {
  const auto fail = [&](const std::string& fact) {
    throw InternalError(fmt::format("webgpu: dispatch \"{}\": {}", dispatch.label, fact));
  };
  if (dispatch.shader < 0 || dispatch.shader >= static_cast<int>(recording_.shaders.size()))
    fail(fmt::format("shader {} of {}", dispatch.shader, recording_.shaders.size()));
  const Shader& shader = recording_.shaders[dispatch.shader];
  if (dispatch.bindings.size() != shader.read_only.size())
    fail(fmt::format("{} bindings for shader \"{}\", which has {}", dispatch.bindings.size(), shader.name,
                     shader.read_only.size()));
  if (dispatch.immediates.size() * 4 != shader.immediate_bytes)
    fail(fmt::format("{} words of immediates for shader \"{}\", which has {} bytes", dispatch.immediates.size(),
                     shader.name, shader.immediate_bytes));
  const Limits& limits = device_->info().limits;
  const Workgroups& groups = dispatch.workgroups;
  if (std::max({groups.x, groups.y, groups.z}) > limits.workgroups_per_dimension)
    fail(fmt::format("{} x {} x {} workgroups, and a dimension takes at most {} (see fold_workgroups)", groups.x,
                     groups.y, groups.z, limits.workgroups_per_dimension));
  for (const Range& range : dispatch.bindings)
    if (range.slot < 0 || range.slot >= static_cast<int>(recording_.slots.size()))
      fail(fmt::format("slot {} of {}", range.slot, recording_.slots.size()));
    else if (range.offset % limits.offset_alignment != 0)
      fail(fmt::format("a binding at offset {}, which is not a multiple of {}", range.offset, limits.offset_alignment));
}

const Buffer& CommandSequence::buffer_of(const Range& range, const std::string& label) const {
  const Slot& slot = recording_.slots.at(range.slot);
  const Buffer& buffer = slot.external >= 0 ? *externals_[slot.external] : *slot.buffer;
  if (range.offset > buffer.allocated_bytes() || bound_bytes(range) > buffer.allocated_bytes() - range.offset)
    throw InternalError(fmt::format("webgpu: \"{}\" uses bytes [{}, {} + {}) of \"{}\", which has {}", label,
                                    range.offset, range.offset, range.bytes, buffer.label(), buffer.bytes()));
  return buffer;
}

CommandSequence::Group CommandSequence::group_of(const Dispatch& dispatch, const Pipeline& pipeline) {
  std::vector<std::uint64_t> key{reinterpret_cast<std::uintptr_t>(pipeline.layout)};
  std::vector<WGPUBindGroupEntry> entries(dispatch.bindings.size());
  const std::uint64_t limit = device_->info().limits.binding_bytes;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Range& range = dispatch.bindings[i];
    const Buffer& buffer = buffer_of(range, dispatch.label);
    if (bound_bytes(range) > limit)
      throw DeviceError(
          fmt::format("{}: \"{}\": operand {} (\"{}\") takes {} bytes, and a kernel of this device reaches at "
                      "most {} of one operand; split it or use a smaller batch",
                      device_->name(), dispatch.label, i, buffer.label(), range.bytes, limit));
    entries[i] = {};
    entries[i].binding = static_cast<std::uint32_t>(i);
    entries[i].buffer = buffer.handle();
    entries[i].offset = range.offset;
    entries[i].size = bound_bytes(range);
    key.insert(key.end(), {buffer.id(), entries[i].offset, entries[i].size});
  }
  // Within one dispatch a buffer is either only read, or written through ranges that do not overlap.
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (std::size_t j = i + 1; j < entries.size(); ++j) {
      if (entries[i].buffer != entries[j].buffer || (pipeline.read_only[i] && pipeline.read_only[j])) continue;
      const bool mixed = pipeline.read_only[i] != pipeline.read_only[j];
      if (mixed || overlap(dispatch.bindings[i], dispatch.bindings[j]))
        throw InternalError(
            fmt::format("webgpu: dispatch \"{}\": operands {} and {} are {} \"{}\"", dispatch.label, i, j,
                        mixed ? "read from and written to one buffer," : "overlapping written ranges of",
                        buffer_of(dispatch.bindings[i], dispatch.label).label()));
    }

  Group& group = groups_[key];
  if (!group) {
    WGPUBindGroupDescriptor descriptor{};
    descriptor.label = view_of(dispatch.label);
    descriptor.layout = pipeline.layout;
    descriptor.entries = entries.data();
    descriptor.entryCount = entries.size();
    group = std::make_shared<const BindGroupHandle>(library().DeviceCreateBindGroup(device_->handle(), &descriptor));
  }
  return group;
}

void CommandSequence::resolve(BoundCommand& bound, const Command& command) {
  if (const auto* dispatch = std::get_if<Dispatch>(&command)) {
    bound.group_owner = group_of(*dispatch, *pipelines_[dispatch->shader]);
    bound.group = bound.group_owner->get();
    return;
  }
  const bool is_copy = std::holds_alternative<Copy>(command);
  const std::string label = is_copy ? "copy" : "clear";
  bound.to_buffer = buffer_of(bound.to, label).handle();
  if (is_copy) bound.from_buffer = buffer_of(bound.from, label).handle();
  if (bound.to.offset % 4 != 0 || bound.from.offset % 4 != 0)
    throw InternalError(
        fmt::format("webgpu: {} at byte {} or {}, which is inside a word", label, bound.from.offset, bound.to.offset));
  if (is_copy && (bound.from.bytes != bound.to.bytes || bound.from_buffer == bound.to_buffer))
    throw InternalError(fmt::format("webgpu: copy of {} bytes to {} bytes{}", bound.from.bytes, bound.to.bytes,
                                    bound.from_buffer == bound.to_buffer ? " of the same buffer" : ""));
}

void CommandSequence::take_externals(std::span<const backend::BufferPtr> externals) {
  if (externals.size() != external_ids_.size())
    throw InternalError(fmt::format("webgpu: a program of {} external buffers was run with {}", external_ids_.size(),
                                    externals.size()));
  externals_.resize(externals.size());
  bool changed = false;
  for (std::size_t i = 0; i < externals.size(); ++i) {
    const backend::Buffer* given = externals[i].get();
    if (!given || typeid(*given) != typeid(Buffer))
      throw DeviceError(fmt::format("{}: operand {} is on another device; move it here first", device_->name(), i));
    externals_[i] = static_cast<const Buffer*>(given);
    if (externals_[i]->device() != device_)
      throw DeviceError(fmt::format("{}: operand {} (\"{}\") is on {}; move it here first", device_->name(), i,
                                    externals_[i]->label(), externals_[i]->device()->name()));
    changed = changed || externals_[i]->id() != external_ids_[i];
  }
  if (!changed) return;

  // If binding the new buffers fails for one command, only some commands use them, so the next run looks up all again.
  const std::vector<std::uint64_t> old_ids =
      std::exchange(external_ids_, std::vector<std::uint64_t>(externals.size(), 0));
  const auto moved = [&](const Range& range) {
    const int external = recording_.slots[range.slot].external;
    return external >= 0 && externals_[external]->id() != old_ids[external];
  };
  for (std::size_t i = 0; i < bound_.size(); ++i) {
    BoundCommand& bound = bound_[i];
    if (!bound.has_externals) continue;
    const bool stale = bound.dispatch
                           ? std::any_of(bound.dispatch->bindings.begin(), bound.dispatch->bindings.end(), moved)
                           : moved(bound.from) || moved(bound.to);
    if (stale) resolve(bound, recording_.commands[i]);
  }
  for (std::size_t i = 0; i < externals.size(); ++i) external_ids_[i] = externals_[i]->id();
  drop_unused_groups();
}

void CommandSequence::drop_unused_groups() {
  // Room for a few sets of externals; beyond it only the groups in use are kept.
  if (groups_.size() <= 4 * bound_.size() + 64) return;
  std::erase_if(groups_, [](const auto& entry) { return entry.second.use_count() == 1; });
}

void CommandSequence::encode_transfer(WGPUCommandEncoder encoder, const BoundCommand& bound) const {
  const Library& api = library();
  if (bound.from_buffer)
    api.CommandEncoderCopyBufferToBuffer(encoder, bound.from_buffer, bound.from.offset, bound.to_buffer,
                                         bound.to.offset, bound_bytes(bound.to));
  else
    api.CommandEncoderClearBuffer(encoder, bound.to_buffer, bound.to.offset, bound_bytes(bound.to));
}

void CommandSequence::run(std::span<const backend::BufferPtr> externals) {
  const std::lock_guard lock(device_->mutex());
  device_->check();
  take_externals(externals);

  const Library& api = library();
  const auto set_pipeline = api.ComputePassEncoderSetPipeline;
  const auto set_group = api.ComputePassEncoderSetBindGroup;
  const auto set_immediates = api.ComputePassEncoderSetImmediates;
  const auto dispatch_workgroups = api.ComputePassEncoderDispatchWorkgroups;

  std::size_t next = 0;
  for (std::size_t chunk = options_.first_chunk; next < bound_.size(); chunk = options_.chunk) {
    const std::size_t end = std::min(bound_.size(), next + std::max<std::size_t>(1, chunk));
    EncoderHandle encoder = device_->encoder();
    PassHandle pass;
    WGPUComputePipeline pipeline = nullptr;
    WGPUBindGroup group = nullptr;
    const auto end_pass = [&] {
      if (!pass) return;
      api.ComputePassEncoderEnd(pass.get());
      pass.reset();
    };
    for (; next < end; ++next) {
      const BoundCommand& bound = bound_[next];
      if (!bound.dispatch) {
        end_pass();
        encode_transfer(encoder.get(), bound);
        continue;
      }
      if (is_empty(bound.dispatch->workgroups)) continue;
      if (!pass) {
        pass = PassHandle(api.CommandEncoderBeginComputePass(encoder.get(), nullptr));
        pipeline = nullptr;
        group = nullptr;
      }
      if (bound.pipeline != pipeline) set_pipeline(pass.get(), pipeline = bound.pipeline);
      if (bound.group != group) set_group(pass.get(), 0, group = bound.group, 0, nullptr);
      const std::vector<std::uint32_t>& immediates = bound.dispatch->immediates;
      if (!immediates.empty()) set_immediates(pass.get(), 0, immediates.data(), immediates.size() * 4);
      const Workgroups& groups = bound.dispatch->workgroups;
      for (std::uint32_t i = 0; i < bound.dispatch->repeats; ++i)
        dispatch_workgroups(pass.get(), groups.x, groups.y, groups.z);
    }
    end_pass();
    device_->submit(std::move(encoder));
  }
  device_->limit_runs_in_flight();
  device_->check();
}

void CommandSequence::submit_timed(std::span<const BoundCommand* const> commands, WGPUQuerySet queries,
                                   WGPUBuffer resolved) {
  const Library& api = library();
  EncoderHandle encoder = device_->encoder();
  std::uint32_t timestamp = 0;
  for (const BoundCommand* bound : commands) {
    if (!bound->dispatch) {
      encode_transfer(encoder.get(), *bound);
      continue;
    }
    WGPUPassTimestampWrites writes{};
    writes.querySet = queries;
    writes.beginningOfPassWriteIndex = timestamp++;
    writes.endOfPassWriteIndex = timestamp++;
    WGPUComputePassDescriptor descriptor{};
    descriptor.label = view_of(bound->dispatch->label);
    descriptor.timestampWrites = &writes;
    const PassHandle pass(api.CommandEncoderBeginComputePass(encoder.get(), &descriptor));
    const Workgroups& groups = bound->dispatch->workgroups;
    if (!is_empty(groups)) {
      const std::vector<std::uint32_t>& immediates = bound->dispatch->immediates;
      api.ComputePassEncoderSetPipeline(pass.get(), bound->pipeline);
      api.ComputePassEncoderSetBindGroup(pass.get(), 0, bound->group, 0, nullptr);
      if (!immediates.empty())
        api.ComputePassEncoderSetImmediates(pass.get(), 0, immediates.data(), immediates.size() * 4);
      for (std::uint32_t i = 0; i < bound->dispatch->repeats; ++i)
        api.ComputePassEncoderDispatchWorkgroups(pass.get(), groups.x, groups.y, groups.z);
    }
    api.ComputePassEncoderEnd(pass.get());
  }
  if (timestamp > 0) api.CommandEncoderResolveQuerySet(encoder.get(), queries, 0, timestamp, resolved, 0);
  device_->submit(std::move(encoder));
}

std::vector<backend::KernelTime> CommandSequence::profile(std::span<const backend::BufferPtr> externals) {
  if (!device_->info().timestamps) return {};
  const std::lock_guard lock(device_->mutex());
  device_->check();
  take_externals(externals);

  const Library& api = library();
  WGPUQuerySetDescriptor query_descriptor{};
  query_descriptor.label = view_of("profile");
  query_descriptor.type = WGPUQueryType_Timestamp;
  query_descriptor.count = 2 * kTimedDispatchesMax;
  const QuerySetHandle queries(api.DeviceCreateQuerySet(device_->handle(), &query_descriptor));
  WGPUBufferDescriptor buffer_descriptor{};
  buffer_descriptor.label = view_of("profile");
  buffer_descriptor.size = 2 * kTimedDispatchesMax * sizeof(std::uint64_t);
  buffer_descriptor.usage = WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc;
  const BufferHandle resolved(api.DeviceCreateBuffer(device_->handle(), &buffer_descriptor));
  const double period_ns = api.QueueGetTimestampPeriod ? api.QueueGetTimestampPeriod(device_->queue()) : 1.0;

  std::vector<backend::KernelTime> times;
  std::vector<const BoundCommand*> batch;
  std::vector<std::uint64_t> stamps;
  std::size_t timed = 0;
  std::uint64_t first = 0;
  const auto flush = [&] {
    submit_timed(batch, queries.get(), resolved.get());
    stamps.resize(2 * timed);
    if (timed > 0) device_->staging().download(resolved.get(), 0, stamps.data(), stamps.size() * sizeof stamps[0]);
    timed = 0;
    for (const BoundCommand* bound : batch) {
      if (!bound->dispatch) continue;
      // Some drivers give an empty pass an end before its beginning.
      const std::uint64_t begin = stamps[2 * timed], end = std::max(begin, stamps[2 * timed + 1]);
      if (times.empty()) first = begin;
      times.push_back({bound->dispatch->label, static_cast<double>(begin - std::min(begin, first)) * period_ns / 1000,
                       static_cast<double>(end - begin) * period_ns / 1000});
      ++timed;
    }
    timed = 0;
    batch.clear();
  };
  for (const BoundCommand& bound : bound_) {
    batch.push_back(&bound);
    if (bound.dispatch && ++timed == kTimedDispatchesMax) flush();
  }
  flush();
  device_->check();
  return times;
}

void CommandSequence::set_immediates(std::size_t command, std::span<const std::uint32_t> words) {
  const std::lock_guard lock(device_->mutex());
  auto* dispatch = std::get_if<Dispatch>(&recording_.commands.at(command));
  if (!dispatch || dispatch->immediates.size() != words.size())
    throw InternalError(
        fmt::format("webgpu: {} words of immediates for command {}, which does not take them", words.size(), command));
  dispatch->immediates.assign(words.begin(), words.end());
}

}  // namespace weft::webgpu
