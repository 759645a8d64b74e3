#include "hub/curl.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::hub {
namespace {

// Of the OpenSSL build, and of Debian's others, which have the same functions.
constexpr const char* kLibraries[] = {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl-nss.so.4"};

const char* fill(Curl& table, void* library) {
#define WEFT_CURL_FIND(name)                                                          \
  table.name = reinterpret_cast<decltype(table.name)>(dlsym(library, "curl_" #name)); \
  if (!table.name) return "curl_" #name;
  WEFT_CURL_FUNCTIONS(WEFT_CURL_FIND)
#undef WEFT_CURL_FIND
  return nullptr;
}

Curl load_curl() {
  std::string tried;
  for (const char* name : kLibraries) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);  // stays loaded
    if (!library) {
      tried += fmt::format("\n  {}", dlerror());
      continue;
    }
    Curl table;
    if (const char* missing = fill(table, library)) {
      tried += fmt::format("\n  {}: lacks {}", name, missing);
      continue;
    }
    if (const CURLcode code = table.global_init(CURL_GLOBAL_DEFAULT); code != CURLE_OK)
      throw FileError(fmt::format("{} cannot start: {}", name, table.easy_strerror(code)));
    return table;
  }
  throw FileError(fmt::format(
      "models are fetched with libcurl, which was not found (Debian: apt-get install libcurl4); tried{}", tried));
}

}  // namespace

const Curl& curl() {
  static const Curl loaded = load_curl();
  return loaded;
}

}  // namespace weft::hub
