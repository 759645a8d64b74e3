#include "cli/network.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <filesystem>

#include "base/library_places.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

constexpr std::string_view kLibrary = "libweft_remote.so",
                           kCure = "install Weft anew, with the command and the library";

const remote::Module& load() {
  std::string tried;
  for (const auto& file : library_places(kLibrary)) {
    if (!std::filesystem::exists(file)) {
      tried += fmt::format("\n  {}: no such file", file.string());
      continue;
    }
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw FileError(fmt::format("the network needs {}, which cannot be loaded: {}", kLibrary, dlerror()));
    const auto module = reinterpret_cast<decltype(&remote::weft_remote_module)>(dlsym(library, "weft_remote_module"));
    if (!module || std::string_view(module()->version) != WEFT_VERSION)
      throw FileError(
          fmt::format("{} belongs to another version of Weft than {}; {}", file.string(), WEFT_VERSION, kCure));
    return *module();  // stays loaded: its libraries have threads
  }
  throw FileError(fmt::format("the network needs {}, which was not found; tried{}\n{}", kLibrary, tried, kCure));
}

}  // namespace

const remote::Module& network() {
  static const remote::Module& loaded = load();
  return loaded;
}

void allow_more_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // else fewer clients are served at once
}

}  // namespace weft::cli
