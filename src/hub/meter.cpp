#include "hub/meter.hpp"

#include <fmt/format.h>

#include "hub/names.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kRoomLeft = 16'000'000;  // on the disk, beside the files

}  // namespace

std::uint64_t size_of_file(const fs::path& path) {
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

std::uint64_t free_on_disk(fs::path place) {
  std::error_code error;
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  const fs::space_info space = fs::space(place.empty() ? fs::path(".") : place, error);
  return error ? 0 : space.available;
}

void check_room(const fs::path& folder, std::uint64_t needed, std::string_view variable) {
  const std::uint64_t room = free_on_disk(folder);
  if (room == 0 || needed == 0 || needed + kRoomLeft <= room) return;
  throw FileError(
      fmt::format("{} are to be fetched, but the disk of '{}' has {} free; make room, or set {} to a folder on "
                  "another disk",
                  bytes_text(needed), folder.string(), bytes_text(room), variable));
}

}  // namespace weft::hub
