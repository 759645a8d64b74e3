#include "hub/client.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/interrupt.hpp"
#include "base/quote.hpp"
#include "hub/names.hpp"
#include "weft/error.hpp"

namespace weft::hub {
namespace {

using Ending = HttpReply::Ending;

constexpr int kRedirectsMax = 10;
constexpr double kFirstWait = 0.5, kWaitMax = 30, kAskedWaitMax = 300;  // seconds

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool may_pass(const HttpReply& reply) {
  if (reply.ending == Ending::timed_out || reply.ending == Ending::cut) return true;
  return reply.ending == Ending::whole && (reply.status == 408 || reply.status == 429 || reply.status / 100 == 5);
}

/// Before any byte came, a name that leads nowhere is a mistake; later it is a network that is gone for a moment.
bool may_come_back(const HttpReply& reply) {
  return reply.ending == Ending::no_host || reply.ending == Ending::no_connection;
}

double asked_wait(const HttpReply& reply) {
  const std::string text = reply.header("retry-after");
  double seconds = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), seconds);
  return read.ec == std::errc() && seconds > 0 ? std::min(seconds, kAskedWaitMax) : 0;
}

std::string fault_of(const HttpReply& reply, const FetchOptions& options) {
  switch (reply.ending) {
    case Ending::no_host: return fmt::format("{}: is the network up? https_proxy names a proxy", reply.fault);
    case Ending::no_connection: return fmt::format("{}: is the network up, and the address right?", reply.fault);
    case Ending::no_trust:
      return fmt::format(
          "the certificate of the server is not trusted: {}; is the clock right? SSL_CERT_FILE names a file "
          "with the certificates of an authority of your own",
          reply.fault);
    case Ending::timed_out: return fmt::format("the server sent nothing for {} s", options.timeout.count());
    case Ending::cut: return fmt::format("the connection ended early: {}", reply.fault);
    default: break;
  }
  if (reply.ending != Ending::whole) return reply.fault;
  if (reply.status == 429) return "the server asks for fewer requests (429)";
  return fmt::format("the server answered {}", reply.status);
}

}  // namespace

Client::Client(const Settings& settings, const FetchOptions& options) : settings_(settings), options_(options) {}

HttpReply Client::get(HttpRequest request) {
  request.timeout = options_.timeout;
  request.stop = options_.stop;
  const std::string hub = origin_of(settings_.endpoint);
  const std::vector<std::string> headers = request.headers;
  const auto on_head = request.on_head;
  // The page of a redirect is not the file.
  request.on_head = [&](int status, const Headers& head) {
    if (is_redirect(status)) return false;
    return !on_head || on_head(status, head);
  };
  Headers linked;
  for (int i = 0; i <= kRedirectsMax; ++i) {
    check_stop();
    request.headers = headers;
    const std::string origin = origin_of(request.address);
    if (!settings_.token.empty() && origin == hub)
      request.headers.push_back("Authorization: Bearer " + settings_.token);
    HttpReply reply = http_.send(request);
    if (reply.ending == Ending::stopped) throw Stopped();
    for (const auto& [name, value] : reply.headers)
      if (name.starts_with("x-linked-") || name == "x-error-code") linked[name] = value;
    if (!is_redirect(reply.status) || (reply.ending != Ending::whole && reply.ending != Ending::unwanted)) {
      for (const auto& [name, value] : linked) reply.headers.try_emplace(name, value);
      return reply;
    }
    const std::string next = redirected(request.address, reply.header("location"));
    if (next.empty())
      return {.ending = Ending::failed,
              .fault = fmt::format("{} redirects to {}, which is not an address of http", origin,
                                   quote(reply.header("location")))};
    if (origin.starts_with("https:") && !next.starts_with("https:"))
      return {.ending = Ending::failed,
              .fault = fmt::format("{} redirects from https to {}, where anybody could change the file", origin,
                                   origin_of(next))};
    request.address = next;
  }
  return {.ending = Ending::failed, .fault = fmt::format("more than {} redirects", kRedirectsMax)};
}

HttpReply Client::persist(const std::string& what, const std::function<HttpReply(bool& got_bytes)>& attempt) {
  bool ever_got_bytes = false;
  for (int failures = 0;;) {
    bool got_bytes = false;
    HttpReply reply = attempt(got_bytes);
    if (reply.ending == Ending::whole && reply.status / 100 == 2) return reply;
    ever_got_bytes = ever_got_bytes || got_bytes;
    if (got_bytes) failures = 0;
    const bool may_help = may_pass(reply) || (ever_got_bytes && may_come_back(reply));
    if (!may_help || failures >= options_.retries) {
      if (reply.ending == Ending::whole && !may_help) return reply;  // its caller knows what the status means
      throw FileError(fmt::format("{}: {}{}{}", what, fault_of(reply, options_),
                                  failures > 0 ? fmt::format(" (after {} attempts)", failures + 1) : "",
                                  may_pass(reply) ? "; what came is kept: run the command again later" : ""));
    }
    const double asked = asked_wait(reply);
    const double seconds = asked > 0 ? asked : std::min(kFirstWait * std::exp2(failures), kWaitMax);
    ++failures;
    if (options_.on_delay)
      options_.on_delay(fmt::format("{}: {}; attempt {} of {} in {:.1f} s", what, fault_of(reply, options_),
                                    failures + 1, options_.retries + 1, seconds));
    wait(seconds);
  }
}

void Client::wait(double seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    check_stop();
    check_interrupt();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

HttpReply Client::get_text(const std::string& what, const std::string& address, std::uint64_t bytes_max) {
  return persist(what, [&](bool&) { return get({.address = address, .body_max = bytes_max}); });
}

std::string refusal_text(const ModelName& name, const Settings& settings, const HttpReply& reply,
                         const std::vector<std::string>& near) {
  const std::string page = fmt::format("{}/{}", settings.endpoint, name.repository);
  const std::string code = reply.header("x-error-code");
  const bool has_token = !settings.token.empty();
  const std::string tokens = settings.endpoint + "/settings/tokens";
  if (code == "GatedRepo" || (reply.status == 403 && code.empty()))
    return has_token
               ? fmt::format(
                     "{}: the owner gives access on request, and your token has none; accept the terms at {} with "
                     "the account of the token, and see that the token may read gated models ({})",
                     name.to_string(), page, tokens)
               : fmt::format(
                     "{}: the owner gives access on request; accept the terms at {}, then set HF_TOKEN to a token "
                     "of your account (from {})",
                     name.to_string(), page, tokens);
  if (code == "RevisionNotFound")
    return fmt::format("{}: the repository has no branch, tag or commit {}; {}/tree/main shows them", name.to_string(),
                       quote(name.revision), page);
  if (reply.status == 401 && has_token && code != "RepoNotFound")
    return fmt::format(
        "{}: the hub does not accept the token of HF_TOKEN; make a new one at {}, or set HF_TOKEN= for none",
        name.to_string(), tokens);
  if (reply.status == 401 || reply.status == 404) {
    std::string text = fmt::format("{}: there is no such model at {}", name.to_string(), settings.endpoint);
    if (!near.empty()) text += fmt::format("; did you mean {}?", fmt::join(near, ", "));
    return text + (has_token ? "" : "; a private one needs HF_TOKEN");
  }
  return fmt::format("{}: the hub answered {}{}", name.to_string(), reply.status,
                     reply.header("x-error-message").empty() ? "" : ": " + quote(reply.header("x-error-message"), 200));
}

}  // namespace weft::hub
