// The WGSL of workgroups that wait for one another.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::webgpu {

/// The buffer in which workgroups meet has a counter in its first word, which needs no reset, and far from it a word that is not 0
/// once a workgroup has waited in vain.
inline constexpr std::uint64_t kMeetingBytes = 256, kMissedOffset = 128;

/// What the function needs: the workgroup and their number, whether it tests, so that none waits for long, and whether it waits at all,
/// which it does once.
inline constexpr std::string_view kMeetingDeclarations =
    "struct Resident { group: u32, groups: u32, tests: bool, waits: bool }\nvar<private> resident: Resident;\n";

/// The text of a function (thread) behind its name. Threads return when all threads of all workgroups have called it, and then see
/// what these wrote before. `array` is the mark of the meeting buffer, an array of atomic<u32>.
std::string meeting_function(std::string_view array);

}  // namespace weft::webgpu
