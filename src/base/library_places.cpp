#include "base/library_places.hpp"

#include <dlfcn.h>

namespace weft {

std::vector<std::filesystem::path> library_places(std::string_view name) {
  std::vector<std::filesystem::path> folders, places;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!program.empty()) folders.push_back(program.parent_path());
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&library_places), &info) && info.dli_fname) {
    const auto module = std::filesystem::weakly_canonical(info.dli_fname, ignored).parent_path();
    if (!module.empty() && (folders.empty() || folders[0] != module)) folders.push_back(module);
  }
  for (const auto& folder : folders)
    for (const auto& place : {folder, folder.parent_path() / "lib" / "weft"}) places.push_back(place / name);
  return places;
}

}  // namespace weft
