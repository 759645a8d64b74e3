#include "hub/http.hpp"

#include <exception>
#include <string>

#include "weft/error.hpp"

#ifdef WEFT_HAS_CURL

#include <algorithm>
#include <cstdlib>

#include "base/interrupt.hpp"
#include "hub/curl.hpp"
#include "hub/names.hpp"

namespace weft::hub {
namespace {

constexpr std::size_t kHeaderBytesMax = 256 << 10;

/// What callbacks of libcurl know of a request. Exceptions may not pass through its frames, so they wait here.
struct Transfer {
  const HttpRequest* request = nullptr;
  HttpReply reply;
  std::size_t header_bytes = 0;
  bool head_is_done = false, is_unwanted = false, is_too_large = false;
  std::exception_ptr thrown;

  bool tell_head() {
    if (head_is_done) return !is_unwanted;
    head_is_done = true;
    if (request->on_head && !request->on_head(reply.status, reply.headers)) is_unwanted = true;
    return !is_unwanted;
  }
  template <class Work>
  bool guarded(const Work& work) {
    try {
      return work();
    } catch (...) {
      thrown = std::current_exception();
      return false;
    }
  }
};

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

std::size_t take_header(char* bytes, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const std::string_view line = without_spaces({bytes, size * count});
  if ((transfer.header_bytes += size * count) > kHeaderBytesMax) {
    transfer.is_too_large = true;
    return 0;
  }
  if (line.starts_with("HTTP/")) {  // also after an interim answer
    transfer.reply.headers.clear();
    const std::size_t space = std::min(line.find(' '), line.size());
    transfer.reply.status = std::atoi(std::string(line.substr(space)).c_str());
  } else if (const std::size_t colon = line.find(':'); colon != std::string_view::npos) {
    transfer.reply.headers[lower(line.substr(0, colon))] = without_spaces(line.substr(colon + 1));
  }
  return size * count;
}

std::size_t take_body(char* bytes, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const std::size_t length = size * count;
  const bool goes_on = transfer.guarded([&] {
    if (!transfer.tell_head()) return false;
    if (transfer.request->on_body && transfer.reply.status / 100 == 2) {
      if (transfer.request->on_body(std::as_bytes(std::span(bytes, length)))) return true;
      transfer.is_unwanted = true;
      return false;
    }
    transfer.is_too_large = transfer.reply.body.size() + length > transfer.request->body_max;
    if (!transfer.is_too_large) transfer.reply.body.append(bytes, length);
    return !transfer.is_too_large;
  });
  return goes_on ? length : 0;
}

int look_around(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& transfer = *static_cast<Transfer*>(self);
  const bool goes_on = transfer.guarded([&] {
    check_interrupt();
    return !transfer.request->stop.stop_requested();
  });
  return goes_on ? 0 : 1;
}

HttpReply::Ending ending_of(CURLcode code) {
  using Ending = HttpReply::Ending;
  switch (code) {
    case CURLE_OK: return Ending::whole;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY: return Ending::no_host;
    case CURLE_COULDNT_CONNECT: return Ending::no_connection;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CERTPROBLEM: return Ending::no_trust;
    case CURLE_OPERATION_TIMEDOUT: return Ending::timed_out;
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return Ending::cut;
    default: return Ending::failed;
  }
}

/// Certificates of authorities in place of the system's, by the variables that other programs read.
const char* authorities() {
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"})
    if (const char* file = std::getenv(name); file && *file) return file;
  return nullptr;
}

}  // namespace

struct HttpClient::State {
  const Curl& library = curl();
  CURL* handle = library.easy_init();
  ~State() { library.easy_cleanup(handle); }
};

HttpClient::HttpClient() : state_(std::make_unique<State>()) {
  if (!state_->handle) throw FileError("libcurl has no memory for a connection");
}
HttpClient::~HttpClient() = default;

HttpReply HttpClient::send(const HttpRequest& request) {
  const Curl& library = state_->library;
  CURL* const handle = state_->handle;
  Transfer transfer{.request = &request};
  char fault[CURL_ERROR_SIZE] = {};
  library.easy_reset(handle);  // keeps connections
  const auto set = [&](CURLoption option, auto value) { library.easy_setopt(handle, option, value); };
  set(CURLOPT_URL, request.address.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_NOBODY, request.only_headers ? 1L : 0L);
  set(CURLOPT_USERAGENT, "weft/" WEFT_VERSION);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(request.timeout.count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.timeout.count()));
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_ERRORBUFFER, &fault[0]);
  set(CURLOPT_HEADERFUNCTION, &take_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
  set(CURLOPT_WRITEFUNCTION, &take_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &look_around);
  set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
  if (const char* file = authorities()) set(CURLOPT_CAINFO, file);
  curl_slist* headers = nullptr;
  for (const std::string& header : request.headers) headers = library.slist_append(headers, header.c_str());
  set(CURLOPT_HTTPHEADER, headers);

  const CURLcode code = library.easy_perform(handle);
  library.slist_free_all(headers);
  if (code == CURLE_OK) transfer.guarded([&] { return transfer.tell_head(); });
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  HttpReply& reply = transfer.reply;
  reply.ending = transfer.is_unwanted                                                 ? HttpReply::Ending::unwanted
                 : request.stop.stop_requested() && code == CURLE_ABORTED_BY_CALLBACK ? HttpReply::Ending::stopped
                                                                                      : ending_of(code);
  if (code != CURLE_OK) reply.fault = fault[0] ? fault : library.easy_strerror(code);
  if (transfer.is_too_large) reply.fault = "the answer is too large";
  return std::move(reply);
}

std::string redirected(const std::string& address, const std::string& location) {
  if (location.empty()) return "";
  const Curl& library = curl();
  CURLU* const url = library.url();
  if (!url) return "";
  std::string result;
  char* text = nullptr;
  if (library.url_set(url, CURLUPART_URL, address.c_str(), 0) == CURLUE_OK &&
      library.url_set(url, CURLUPART_URL, location.c_str(), 0) == CURLUE_OK &&
      library.url_get(url, CURLUPART_URL, &text, 0) == CURLUE_OK) {
    result = text;
    library.free(text);
  }
  library.url_cleanup(url);
  return origin_of(result).empty() ? "" : result;
}

}  // namespace weft::hub

#else

namespace weft::hub {

struct HttpClient::State {};

HttpClient::HttpClient() {
  throw FileError(
      "this build of Weft fetches no models: it was made without libcurl; models that are here can be used");
}
HttpClient::~HttpClient() = default;
HttpReply HttpClient::send(const HttpRequest&) { return {.ending = HttpReply::Ending::failed}; }
std::string redirected(const std::string&, const std::string&) { return ""; }

}  // namespace weft::hub

#endif
