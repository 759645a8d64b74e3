// A connection with or without TLS as one type, so that the functions of Beast that use it are compiled once.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace weft::remote {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;

/// A stream in the sense of Asio's AsyncReadStream and AsyncWriteStream, for one thread.
class Stream {
 public:
  using executor_type = beast::tcp_stream::executor_type;
  using Error = boost::system::error_code;
  using Tls = asio::ssl::stream<beast::tcp_stream&>;

  explicit Stream(asio::io_context& context) : tcp_(context) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  beast::tcp_stream& tcp() { return tcp_; }
  /// From here on, reads and writes go through TLS. The caller sets it up and runs the handshake.
  Tls& use_tls(asio::ssl::context& context) { return tls_.emplace(tcp_, context); }
  Tls* tls() { return tls_ ? &*tls_ : nullptr; }

  executor_type get_executor() { return tcp_.get_executor(); }
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    const auto start = [this](auto handler, MutableBuffers list) { read(list, erased(std::move(handler))); };
    return asio::async_initiate<Token, void(Error, std::size_t)>(start, token, listed<asio::mutable_buffer>(buffers));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    const auto start = [this](auto handler, ConstBuffers list) { write(list, erased(std::move(handler))); };
    return asio::async_initiate<Token, void(Error, std::size_t)>(start, token, listed<asio::const_buffer>(buffers));
  }

 private:
  using Done = std::function<void(Error, std::size_t)>;
  using MutableBuffers = std::vector<asio::mutable_buffer>;
  using ConstBuffers = std::vector<asio::const_buffer>;

  template <class Buffer, class Buffers>
  static std::vector<Buffer> listed(const Buffers& buffers) {
    return {asio::buffer_sequence_begin(buffers), asio::buffer_sequence_end(buffers)};
  }
  /// Handlers of Beast cannot be copied, as a function must be.
  template <class Handler>
  static Done erased(Handler handler) {
    auto shared = std::make_shared<Handler>(std::move(handler));
    return [shared = std::move(shared)](Error error, std::size_t size) { std::move (*shared)(error, size); };
  }
  void read(const MutableBuffers& buffers, Done done);
  void write(const ConstBuffers& buffers, Done done);

  beast::tcp_stream tcp_;
  std::optional<Tls> tls_;
};

}  // namespace weft::remote
