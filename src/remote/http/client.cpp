#include "remote/http/client.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "remote/http/stream.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
using namespace std::chrono_literals;

constexpr auto kPatience = 30s;
constexpr std::size_t kPiece = 64 << 10;

std::string text_of(beast::string_view text) { return {text.data(), text.size()}; }

// One request. Each step runs to its end, to the deadline, or until the caller's stop token closes the connection.
class Exchange {
 public:
  Exchange(const HttpRequest& request, const std::function<bool(const HttpReply&, std::string_view)>& take)
      : request_(request), take_(take), stream_(context_) {}

  HttpReply run() {
    const std::stop_callback on_stop(request_.stop, [this] {
      asio::post(context_, [this] {
        resolver_.cancel();
        stream_.tcp().close();
      });
    });
    connect();
    if (!request_.url.tls) return talk();
    asio::ssl::context tls(asio::ssl::context::tls_client);
    beast::error_code error;
    const HttpTls& files = request_.tls;
    if (files.authority.empty())
      tls.set_default_verify_paths(error);
    else
      tls.load_verify_file(files.authority.string(), error);
    if (!error && !files.certificate.empty()) {
      tls.use_certificate_chain_file(files.certificate.string(), error);
      if (!error) tls.use_private_key_file(files.key.string(), asio::ssl::context::pem, error);
    }
    if (error) throw FileError(fmt::format("TLS: a certificate or key cannot be read: {}", error.message()));
    tls.set_verify_mode(asio::ssl::verify_peer);
    Stream::Tls& secure = stream_.use_tls(tls);
    secure.set_verify_callback(asio::ssl::host_name_verification(request_.url.host));
    SSL_set_tlsext_host_name(secure.native_handle(), request_.url.host.c_str());
    check(step([&](auto done) { secure.async_handshake(asio::ssl::stream_base::client, done); }), "agree on TLS with");
    return talk();
  }

 private:
  template <class Start>
  beast::error_code step(const Start& start) {
    beast::error_code result = asio::error::operation_aborted;
    const auto left = request_.deadline ? *request_.deadline - op::Clock::now() : op::Clock::duration(kPatience);
    stream_.tcp().expires_after(std::max<std::chrono::nanoseconds>(1ms, left));
    start([&](beast::error_code error, auto&&...) { result = error; });
    context_.restart();
    context_.run();
    return result;
  }

  void check(const beast::error_code& error, std::string_view doing) const {
    if (!error) return;
    if (request_.stop.stop_requested()) throw op::OperationError(op::kAborted, "the call was aborted");
    const std::string server = request_.url.authority();
    if (error == beast::error::timeout)
      throw op::OperationError(op::kTimeout, fmt::format("{} did not answer in time", server));
    if (error == http::error::body_limit || error == http::error::header_limit)
      throw op::OperationError("TOO_LARGE",
                               fmt::format("the answer of {} has more than {} bytes", server, request_.body_bytes_max));
    throw op::OperationError("UNAVAILABLE", fmt::format("cannot {} {}: {}", doing, server, error.message()));
  }

  void connect() {
    Tcp::resolver::results_type places;
    check(step([&](auto done) {
            resolver_.async_resolve(request_.url.host, request_.url.port,
                                    [&places, done](beast::error_code error, auto found) mutable {
                                      places = found;
                                      done(error);
                                    });
          }),
          "find");
    check(step([&](auto done) { stream_.tcp().async_connect(places, done); }), "connect to");
    beast::error_code ignored;
    stream_.tcp().socket().set_option(Tcp::no_delay(true), ignored);
  }

  HttpReply talk() {
    http::request<http::string_body> message(http::string_to_verb(request_.method), request_.url.target, 11);
    message.set(http::field::host, request_.url.authority());
    message.set(http::field::connection, "close");
    for (const auto& [name, value] : request_.headers) message.set(name, value);
    message.body() = request_.body;
    if (!request_.body.empty() || request_.method == "POST") message.prepare_payload();
    if (request_.was_sent) *request_.was_sent = true;
    // A server that refuses a large body answers before it has read it, and closes the connection.
    const beast::error_code sent = step([&](auto done) { http::async_write(stream_, message, done); });
    const bool closed = sent == asio::error::broken_pipe || sent == asio::error::connection_reset;
    if (!closed) check(sent, "send to");
    beast::flat_buffer buffer;
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(request_.body_bytes_max);
    parser.header_limit(64 << 10);
    const beast::error_code headed = step([&](auto done) { http::async_read_header(stream_, buffer, parser, done); });
    if (headed && closed) check(sent, "send to");
    check(headed, "read the answer of");
    HttpReply reply{.status = static_cast<int>(parser.get().result_int())};
    for (const auto& field : parser.get())
      reply.headers.emplace_back(text_of(field.name_string()), text_of(field.value()));
    std::string piece(kPiece, '\0');
    while (!parser.is_done()) {
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      auto error = step([&](auto done) { http::async_read_some(stream_, buffer, parser, done); });
      if (error == http::error::need_buffer) error = {};
      const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
      if (!got.empty()) {
        if (!take_)
          reply.body += got;
        else if (!take_(reply, got))
          return reply;
      }
      check(error, "read the answer of");
    }
    return reply;
  }

  const HttpRequest& request_;
  const std::function<bool(const HttpReply&, std::string_view)>& take_;
  asio::io_context context_{1};
  Tcp::resolver resolver_{context_};
  Stream stream_;
};

}  // namespace

HttpUrl HttpUrl::parse(std::string_view url) {
  const std::string_view all = url;
  HttpUrl parsed;
  parsed.tls = url.starts_with("https://");
  const bool known = parsed.tls || url.starts_with("http://");
  url.remove_prefix(known ? url.find("://") + 3 : 0);
  const auto slash = url.find_first_of("/?#");
  std::string_view place = url.substr(0, slash);
  parsed.target = slash == std::string_view::npos ? "/" : std::string(url.substr(slash, url.find('#') - slash));
  if (!parsed.target.starts_with('/')) parsed.target = "/" + parsed.target;
  parsed.port = parsed.tls ? "443" : "80";
  const auto bracket = place.find(']');
  if (const auto colon = place.rfind(':');
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
    parsed.port = place.substr(colon + 1);
    place = place.substr(0, colon);
  }
  if (place.starts_with('[') && place.ends_with(']')) place = place.substr(1, place.size() - 2);
  parsed.host = place;
  const auto bad = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == 127; };
  const bool good_port = !parsed.port.empty() && parsed.port.size() <= 5 &&
                         parsed.port.find_first_not_of("0123456789") == std::string::npos;
  if (!known || parsed.host.empty() || !good_port || parsed.host.find('@') != std::string::npos ||
      std::any_of(all.begin(), all.end(), bad))
    throw UsageError(fmt::format("{} is not a URL of the form http://HOST[:PORT]/PATH or https://...",
                                 quote(all.substr(all.rfind('@') + 1), 200)));
  return parsed;
}

std::string HttpUrl::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? "443" : "80") ? name : name + ":" + port;
}

std::string_view HttpReply::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (beast::iequals(beast::string_view(key), beast::string_view(name.data(), name.size()))) return value;
  return "";
}

HttpReply http_request(const HttpRequest& request,
                       const std::function<bool(const HttpReply&, std::string_view)>& take) {
  return Exchange(request, take).run();
}

}  // namespace weft::remote
