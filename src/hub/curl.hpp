// The functions of libcurl, which is loaded when the first model is fetched: a program that fetches none does not wait for the
// thirty libraries that it brings.
#pragma once

// Its checks of types are macros, which do not know a function in a table.
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#define WEFT_CURL_FUNCTIONS(X) \
  X(global_init)               \
  X(easy_init)                 \
  X(easy_cleanup)              \
  X(easy_reset)                \
  X(easy_setopt)               \
  X(easy_perform)              \
  X(easy_getinfo)              \
  X(easy_strerror)             \
  X(slist_append)              \
  X(slist_free_all)            \
  X(url)                       \
  X(url_set)                   \
  X(url_get)                   \
  X(url_cleanup)               \
  X(free)

namespace weft::hub {

struct Curl {
#define WEFT_CURL_MEMBER(name) decltype(&::curl_##name) name = nullptr;
  WEFT_CURL_FUNCTIONS(WEFT_CURL_MEMBER)
#undef WEFT_CURL_MEMBER
};

/// Loads it at the first call. Errors: FileError if the machine has no libcurl 7.62 or newer.
const Curl& curl();

}  // namespace weft::hub
