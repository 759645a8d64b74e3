#include "backend/webgpu/meetings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "backend/webgpu/buffer.hpp"
#include "backend/webgpu/command_sequence.hpp"
#include "backend/webgpu/staging.hpp"
#include "backend/webgpu/wgsl/meeting.hpp"
#include "base/log.hpp"

namespace weft::webgpu {

const std::shared_ptr<Buffer>& Meetings::buffer() {
  if (!buffer_) {
    buffer_ = Buffer::create(device_, kMeetingBytes, "meetings of workgroups");
    device_->staging().watch(buffer_, kMissedOffset);
  }
  return buffer_;
}

std::uint32_t Meetings::resident_groups(const Shader& shader, std::uint64_t wanted, std::uint32_t compute_units) {
  const auto [found, is_new] = groups_.try_emplace({shader.text, wanted}, 0);
  if (!is_new) return found->second;
  // A trial is a dispatch of two lines of workgroups.
  std::uint64_t before = 0;
  for (const std::uint64_t of_unit : {8, 6, 4, 3, 2, 1}) {
    const std::uint64_t groups = std::min((wanted + 1) / 2, of_unit * compute_units / 2) * 2;
    if (groups == 0 || groups == before) continue;
    if (meet(shader, static_cast<std::uint32_t>(groups))) return found->second = static_cast<std::uint32_t>(groups);
    before = groups;
  }
  log(LogLevel::warning, "webgpu",
      fmt::format("{}: workgroups of \"{}\" do not run at once", device_->name(), shader.name));
  return 0;
}

bool Meetings::meet(const Shader& shader, std::uint32_t groups) {
  constexpr std::uint64_t kBytes = 256;  // of a binding that a trial never reads
  Recording recording;
  const std::uint64_t unused = shader.read_only.size() * kBytes;
  recording.slots = {Slot{buffer()}, Slot{Buffer::create(device_, unused, "read in a trial")},
                     Slot{Buffer::create(device_, unused, "written in a trial")}};
  Dispatch dispatch{shader.name, 0, {}, {groups / 2, 2, 1}};
  for (std::size_t i = 0; i + 1 < shader.read_only.size(); ++i)
    dispatch.bindings.push_back({shader.read_only[i] ? 1 : 2, i * kBytes, kBytes});
  dispatch.bindings.push_back({0, 0, kMeetingBytes});
  recording.shaders = {shader};
  recording.commands = {dispatch};
  CommandSequence(device_, std::move(recording)).run({});
  std::uint32_t missed = 0;
  device_->staging().watch({}, 0);
  buffer_->download(kMissedOffset, &missed, 4);
  if (missed != 0) buffer_->clear();
  device_->staging().watch(buffer_, kMissedOffset);
  return missed == 0;
}

}  // namespace weft::webgpu
