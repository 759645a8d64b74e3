// fetch for hosts that were granted: HTTP/1.0 without TLS, one connection a request, no redirects followed.
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/quote.hpp"
#include "script/engine.hpp"
#include "script/files.hpp"
#include "script/loop.hpp"

namespace weft::script {
namespace {

constexpr std::size_t kAnswerBytesMax = std::size_t{64} << 20;
constexpr auto kPatience = std::chrono::seconds(30);

struct Request {
  std::string host, port = "80", path = "/", method = "GET", body;
  std::vector<std::pair<std::string, std::string>> headers;
};
struct Reply {
  int status = 0;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) <= 32 || c == 127; });
}

Request parsed(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme))
    throw UsageError(fmt::format("fetch: {} does not start with http://; TLS is left to a proxy", quote(url)));
  url.remove_prefix(kScheme.size());
  Request request;
  const std::size_t slash = url.find_first_of("/?#");
  std::string_view authority = url.substr(0, slash);
  if (slash != std::string_view::npos) request.path = std::string(url.substr(slash, url.find('#') - slash));
  if (!request.path.starts_with('/')) request.path = "/" + request.path;
  if (const std::size_t colon = authority.rfind(':'); colon != std::string_view::npos) {
    request.port = std::string(authority.substr(colon + 1));
    authority = authority.substr(0, colon);
  }
  request.host = std::string(authority);
  const bool good_port = !request.port.empty() && request.port.size() <= 5 &&
                         request.port.find_first_not_of("0123456789") == std::string::npos;
  if (request.host.empty() || !good_port || has_control(request.host) || has_control(request.path) ||
      request.host.find_first_of("@[]\\") != std::string::npos)
    throw UsageError(fmt::format("fetch: {} is not a URL of the form http://HOST[:PORT]/PATH", quote(url)));
  return request;
}

// Waits until the socket is ready.
struct Patience {
  Loop::Clock::time_point until;
  std::shared_ptr<std::atomic<bool>> ending;
};
void wait_for(int socket, short events, const Patience& patience) {
  pollfd each{socket, events, 0};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(patience.until - Loop::Clock::now()).count();
    if (left <= 0 || *patience.ending) throw FileError("fetch: no answer in time");
    const int ready = ::poll(&each, 1, static_cast<int>(std::min<long long>(left, 100)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw FileError(fmt::format("fetch: {}", std::strerror(errno)));
  }
}

Descriptor connected(const Request& request, const Patience& until) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(request.host.c_str(), request.port.c_str(), &hints, &list); error != 0)
    throw FileError(fmt::format("fetch: {}: {}", quote(request.host), ::gai_strerror(error)));
  struct Free {
    addrinfo* list;
    ~Free() { ::freeaddrinfo(list); }
  } const free{list};
  for (const addrinfo* each = list; each; each = each->ai_next) {
    Descriptor socket(::socket(each->ai_family, each->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, each->ai_protocol));
    if (socket.number() < 0) continue;
    if (::connect(socket.number(), each->ai_addr, each->ai_addrlen) == 0) return socket;
    if (errno != EINPROGRESS) continue;
    wait_for(socket.number(), POLLOUT, until);
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) return socket;
  }
  throw FileError(fmt::format("fetch: {}:{} does not answer", request.host, request.port));
}

Reply exchanged(const Request& request, const Patience& until) {
  const Descriptor socket = connected(request, until);
  std::string text = fmt::format("{} {} HTTP/1.0\r\nHost: {}:{}\r\nConnection: close\r\n", request.method, request.path,
                                 request.host, request.port);
  for (const auto& [name, value] : request.headers) text += fmt::format("{}: {}\r\n", name, value);
  if (!request.body.empty()) text += fmt::format("Content-Length: {}\r\n", request.body.size());
  text += "\r\n" + request.body;
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t count = ::send(socket.number(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count > 0)
      rest.remove_prefix(static_cast<std::size_t>(count));
    else if (count < 0 && (errno == EAGAIN || errno == EINTR))
      wait_for(socket.number(), POLLOUT, until);
    else
      throw FileError("fetch: the connection was closed");
  }
  std::string answer;
  char part[1 << 16];
  for (;;) {
    const ssize_t count = ::recv(socket.number(), part, sizeof part, 0);
    if (count == 0) break;
    if (count < 0) {
      if (errno != EAGAIN && errno != EINTR) throw FileError("fetch: the connection was closed");
      wait_for(socket.number(), POLLIN, until);
      continue;
    }
    if (answer.size() + static_cast<std::size_t>(count) > kAnswerBytesMax)
      throw FileError(fmt::format("fetch: an answer of more than {} bytes", kAnswerBytesMax));
    answer.append(part, static_cast<std::size_t>(count));
  }
  Reply reply;
  const std::size_t end = answer.find("\r\n\r\n"), space = answer.find(' ');
  if (!answer.starts_with("HTTP/1.") || end == std::string::npos || space + 4 > answer.size() ||
      std::from_chars(answer.data() + space + 1, answer.data() + space + 4, reply.status).ec != std::errc())
    throw FileError("fetch: the answer is not HTTP");
  std::size_t line = answer.find("\r\n") + 2;
  while (line < end) {
    const std::size_t stop = answer.find("\r\n", line), colon = answer.find(':', line);
    if (colon < stop) {
      std::string name = answer.substr(line, colon - line);
      std::transform(name.begin(), name.end(), name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
      const std::size_t value = answer.find_first_not_of(' ', colon + 1);
      reply.headers.emplace_back(std::move(name), answer.substr(value, stop - value));
    }
    line = stop + 2;
  }
  reply.body = answer.substr(end + 4);
  return reply;
}

// fetch(url, {method, headers, body}): a promise of {status, ok, headers, text, bytes}.
Local fetch(Engine& engine, JSValueConst, Arguments arguments) {
  Request request = parsed(engine.text(at(arguments, 0)));
  const auto& hosts = engine.options.net_hosts;
  if (std::none_of(hosts.begin(), hosts.end(), [&](const std::string& host) {
        return host == request.host || host == request.host + ":" + request.port;
      }))
    throw AccessError(fmt::format("fetch: the host {} is not granted; grant it with --allow-net", quote(request.host)));
  Options options(engine, at(arguments, 1), "fetch");
  request.method = options.text("method", "GET");
  request.body = options.text("body", "");
  const Local headers = options.value("headers");
  options.finish();
  if (request.method.empty() || request.method.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") != std::string::npos)
    Engine::refuse("fetch", "the method is not a word of capital letters");
  if (!JS_IsUndefined(headers.get())) {
    const Value given = value_from(engine, headers.get());
    for (const auto& [name, value] : given.members()) {
      const std::string& text = value.string();
      if (has_control(name) || name.find(':') != std::string::npos || text.find_first_of("\r\n") != std::string::npos)
        Engine::refuse("fetch", "a header has a line end");
      request.headers.emplace_back(name, text);
    }
  }
  const auto reply = std::make_shared<Reply>();
  return engine.loop->promise(
      [request, reply, patience = Patience{Loop::Clock::now() + kPatience, engine.loop->ending}] {
        *reply = exchanged(request, patience);
      },
      [&engine, reply] {
        Local object = engine.object(), fields = engine.object();
        for (const auto& [name, value] : reply->headers) engine.set(fields.get(), name.c_str(), engine.string(value));
        engine.set(object.get(), "status", {engine.context, JS_NewInt32(engine.context, reply->status)});
        engine.set(object.get(), "ok", {engine.context, JS_NewBool(engine.context, reply->status / 100 == 2)});
        engine.set(object.get(), "headers", std::move(fields));
        engine.set(object.get(), "text", engine.string(reply->body));
        engine.set(object.get(), "bytes", typed_array(engine, DType::u8, std::as_bytes(std::span(reply->body))));
        return object;
      },
      true);
}

}  // namespace

void define_net(Engine& engine) { add_function<fetch>(engine, "fetch", 1); }

}  // namespace weft::script
