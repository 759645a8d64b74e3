// What files that are read, written and appended to share: calls of the system, and their errors in words.
#pragma once

#include <cerrno>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file_system.hpp"

namespace weft {

/// What an errno means, and what to do about it.
std::string fact_and_cure(int error);
/// FileError "cannot DOING 'PATH': ...".
[[noreturn]] void throw_file_error(std::string_view doing, const std::filesystem::path& path, int error);
/// The folder that a file is in.
std::filesystem::path folder_of(const std::filesystem::path& path);
/// Makes renames in a folder, and names of new files, survive a power failure. Returns an errno value, 0 for success.
int sync_folder(const std::filesystem::path& folder);

/// Repeats a call that a signal interrupted.
template <class Call>
auto retry_interrupted(const Call& call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
  }
}

}  // namespace weft
