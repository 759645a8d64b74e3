#include "backend/webgpu/library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "backend/webgpu/library_prints.hpp"
#include "base/library_places.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr const char* kNames[] = {"libwebgpu_dawn.so", "libwgpu_native.so"};

std::vector<std::string> candidates() {
  // If the user names a library, no other is tried: a silent fallback would hide a typing error.
  if (const char* named = std::getenv("WEFT_WEBGPU_LIBRARY"); named && *named) return {named};
  std::vector<std::string> files;
  for (const char* name : kNames)
    for (const auto& place : library_places(name)) files.push_back(place.string());
  // Programs of the source tree find the library that was fetched there through their run path, which an installation drops.
  for (const char* name : kNames) files.emplace_back(name);
  return files;
}

// Fills the table; returns the name of the first function that the library lacks, or null.
const char* fill(Library& table) {
#define WEFT_WEBGPU_FIND(name)                                                      \
  table.name = reinterpret_cast<WGPUProc##name>(dlsym(table.handle, "wgpu" #name)); \
  if (!table.name) return "wgpu" #name;
  WEFT_WEBGPU_FUNCTIONS(WEFT_WEBGPU_FIND)
#undef WEFT_WEBGPU_FIND
  table.DevicePoll = reinterpret_cast<decltype(table.DevicePoll)>(dlsym(table.handle, "wgpuDevicePoll"));
  table.QueueGetTimestampPeriod =
      reinterpret_cast<decltype(table.QueueGetTimestampPeriod)>(dlsym(table.handle, "wgpuQueueGetTimestampPeriod"));
  table.is_dawn = table.DevicePoll == nullptr;
  return nullptr;
}

Library load() {
  std::string tried;
  for (const std::string& file : candidates()) {
    const bool is_path = file.find('/') != std::string::npos;
    if (is_path && !std::filesystem::exists(file)) {
      tried += fmt::format("\n  {}: no such file", file);
      continue;
    }
    Library table;
    table.handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!table.handle) {
      tried += fmt::format("\n  {}: {}", file, dlerror());
      continue;
    }
    if (const char* missing = fill(table)) {
      tried += fmt::format("\n  {}: lacks {} (a newer library is needed)", file, missing);
      dlclose(table.handle);
      continue;
    }
    Dl_info info{};
    const bool found = dladdr(reinterpret_cast<void*>(table.CreateInstance), &info) && info.dli_fname;
    table.path = found ? info.dli_fname : file;
    if (table.is_dawn) take_prints(reinterpret_cast<void*>(table.CreateInstance));
    return table;
  }
  throw DeviceError(
      fmt::format("webgpu: no WebGPU library could be loaded; tried{}\n"
                  "run script/setup to fetch one, or set WEFT_WEBGPU_LIBRARY to the file of a Dawn build",
                  tried));
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

}  // namespace weft::webgpu
