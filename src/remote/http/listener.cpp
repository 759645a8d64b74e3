#include "remote/http/listener.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::remote {

using namespace std::chrono_literals;

namespace {

constexpr auto kPause = 100ms;           // before the next accept, after the process had no free descriptor
constexpr std::size_t kLeavingMax = 64;  // connections that give way at the same time, and how long one may take
constexpr auto kLeavingTime = 3s;

// Answers leave at once. A client whose machine or network has gone says nothing: after half a minute the kernel finds out.
void set_options(int socket) {
  struct Option {
    int level, name, value;
  };
  constexpr Option kOptions[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                                 {SOL_SOCKET, SO_KEEPALIVE, 1},
                                 {IPPROTO_TCP, TCP_KEEPIDLE, 15},
                                 {IPPROTO_TCP, TCP_KEEPINTVL, 5},
                                 {IPPROTO_TCP, TCP_KEEPCNT, 3}};
  for (const Option& each : kOptions) ::setsockopt(socket, each.level, each.name, &each.value, sizeof each.value);
}

}  // namespace

struct HttpListener::State {
  HttpShared& shared;
  const MakeConnection make;
  const std::function<void()> sweep_more;
  asio::io_context context{1};
  Tcp::acceptor acceptor{context};
  asio::steady_timer pause{context};
  std::mutex mutex;
  std::condition_variable changed;
  struct Open {
    int socket;
    std::chrono::steady_clock::time_point accepted = std::chrono::steady_clock::now();
    std::thread thread;
    bool done = false, gives_way = false;
    HttpConnection* connection = nullptr;  // while it is served
  };
  std::list<Open> open;
  bool ending = false;
  std::thread accepting, sweeping;

  State(HttpShared& shared, MakeConnection make, std::function<void()> sweep_more)
      : shared(shared), make(std::move(make)), sweep_more(std::move(sweep_more)) {
    const HttpOptions& options = shared.options;
    if (options.certificate.empty()) return;
    beast::error_code error;
    asio::ssl::context& tls = shared.tls.emplace(asio::ssl::context::tls_server);
    const auto check = [&](const std::filesystem::path& file) {
      if (error) throw FileError(fmt::format("TLS: {} cannot be used: {}", quote(file.string()), error.message()));
    };
    tls.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                    asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
    tls.use_certificate_chain_file(options.certificate.string(), error);
    check(options.certificate);
    tls.use_private_key_file(options.key.string(), asio::ssl::context::pem, error);
    check(options.key);
    if (options.client_authority.empty()) return;
    tls.load_verify_file(options.client_authority.string(), error);
    check(options.client_authority);
    tls.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  }

  void listen() {
    beast::error_code error;
    const auto address =
        asio::ip::make_address(shared.options.host == "localhost" ? "127.0.0.1" : shared.options.host, error);
    if (error) throw UsageError(fmt::format("{} is not an IP address to listen on", quote(shared.options.host)));
    const Tcp::endpoint endpoint(address, shared.options.port);
    const auto check = [&](std::string_view doing) {
      if (error)
        throw FileError(
            fmt::format("cannot {} {}:{}: {}", doing, shared.options.host, shared.options.port, error.message()));
    };
    acceptor.open(endpoint.protocol(), error);
    check("open a socket for");
    acceptor.set_option(asio::socket_base::reuse_address(true), error);
    acceptor.bind(endpoint, error);
    check("listen on");
    acceptor.listen(asio::socket_base::max_listen_connections, error);
    check("listen on");
    accept();
    accepting = std::thread([this] { context.run(); });
    sweeping = std::thread([this] { sweep(); });
  }

  void accept() {
    acceptor.async_accept([this](beast::error_code error, Tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) {
        // No descriptor is free, as a rule. The client waits in the queue of the kernel, and is asked for again a little later.
        pause.expires_after(kPause);
        pause.async_wait([this](beast::error_code ended) {
          if (!ended) accept();
        });
        return;
      }
      set_options(socket.native_handle());
      begin(socket.release());
      accept();
    });
  }

  void begin(int socket) {
    reap();
    std::unique_lock lock(mutex);
    if (ending || !has_room(lock)) return refuse(socket);
    const auto place = open.insert(open.end(), Open{.socket = socket, .thread = {}});
    try {
      place->thread = std::thread([this, place] { serve(*place); });
    } catch (const std::system_error&) {  // the system allows no further thread
      open.erase(place);
      refuse(socket);
    }
  }

  // No thread is spent on it; the client sees that the connection ends.
  static void refuse(int socket) {
    constexpr std::string_view kBusy =
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    [[maybe_unused]] const ssize_t sent = ::send(socket, kBusy.data(), kBusy.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(socket);
  }

  struct Census {
    std::size_t staying = 0, leaving = 0,
                starting = 0;   // `starting` of those that stay: their threads have not run yet
    Open* longest = nullptr;    // of those that wait for a request
    bool older_starts = false;  // the thread of one that came before it has not run yet
  };

  Census count() {
    Census all;
    auto first = std::chrono::steady_clock::time_point::max(), first_starting = first;
    for (Open& each : open) {
      if (each.done) continue;
      ++(each.gives_way ? all.leaving : all.staying);
      if (each.gives_way) continue;
      if (!each.connection) {
        ++all.starting;
        first_starting = std::min(first_starting, each.accepted);
        continue;
      }
      const auto since = each.connection->waits_since();
      if (!since || *since >= first) continue;
      all.longest = &each;
      first = *since;
    }
    all.older_starts = first_starting < first;
    return all;
  }

  // Where all places are taken, the connection that has waited the longest for a request gives its place away: whoever opens
  // connections and says nothing keeps nobody out. Those who come meanwhile wait in the queue of the kernel.
  bool has_room(std::unique_lock<std::mutex>& lock) {
    Census all;
    changed.wait_for(lock, kLeavingTime, [&] {
      all = count();
      const bool may_leave = all.longest && !all.older_starts && all.leaving < kLeavingMax;
      const bool all_are_served = !all.longest && all.starting == 0;
      return ending || all.staying < shared.options.connections_max || may_leave || all_are_served;
    });
    if (ending) return false;
    if (all.staying < shared.options.connections_max) return true;
    if (!all.longest || all.leaving >= kLeavingMax) return false;
    all.longest->gives_way = true;
    ::shutdown(all.longest->socket, SHUT_RDWR);
    return true;
  }

  void serve(Open& place) {
    std::unique_ptr<HttpConnection> connection;
    bool ends = false;
    try {
      connection = make(OpenSocket(place.socket, place.accepted));
      {
        const std::lock_guard lock(mutex);
        place.connection = connection.get();
        ends = ending;
      }
      changed.notify_all();
      if (!ends) connection->serve();
    } catch (const std::exception&) {  // a connection that cannot be set up ends alone
    }
    // Done before the socket is closed: `close` shuts down sockets that are not done, and a closed one's number may be another's.
    {
      const std::lock_guard lock(mutex);
      place.done = true;
      place.connection = nullptr;
    }
    changed.notify_all();
  }

  // Joins threads whose connections have ended.
  void reap() {
    std::list<Open> ended;
    {
      const std::lock_guard lock(mutex);
      for (auto it = open.begin(); it != open.end();) {
        const auto at = it++;
        if (at->done) ended.splice(ended.end(), open, at);
      }
    }
    for (Open& each : ended) each.thread.join();
  }

  void sweep() {
    std::unique_lock lock(mutex);
    while (!ending) {
      changed.wait_for(lock, std::min<std::chrono::seconds>(shared.options.handle_time, 30s));
      lock.unlock();
      if (sweep_more) sweep_more();
      reap();
      lock.lock();
    }
  }

  void close() {
    {
      const std::lock_guard lock(mutex);
      ending = true;
      for (const Open& each : open)
        if (each.connection) ::shutdown(each.socket, SHUT_RDWR);
    }
    changed.notify_all();
    asio::post(context, [this] {
      beast::error_code ignored;
      acceptor.close(ignored);
      pause.cancel();
    });
    if (accepting.joinable()) accepting.join();
    if (sweeping.joinable()) sweeping.join();
    {
      std::unique_lock lock(mutex);
      changed.wait(lock,
                   [&] { return std::all_of(open.begin(), open.end(), [](const Open& each) { return each.done; }); });
    }
    reap();
  }
};

HttpListener::HttpListener(HttpShared& shared, MakeConnection make, std::function<void()> sweep)
    : state_(std::make_unique<State>(shared, std::move(make), std::move(sweep))) {
  state_->listen();
}

HttpListener::~HttpListener() { state_->close(); }

std::uint16_t HttpListener::port() const { return state_->acceptor.local_endpoint().port(); }

}  // namespace weft::remote
