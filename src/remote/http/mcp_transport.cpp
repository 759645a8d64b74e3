#include "remote/http/mcp_transport.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "base/quote.hpp"
#include "weft/value.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
using namespace std::chrono_literals;
using serve::McpFailure;

constexpr auto kResumePause = 500ms, kResumePauseMax = 30'000ms;
constexpr std::int64_t kNoRequest = -1;           // nothing that arrives answers it
constexpr int kResumesMax = 5;                    // of a stream, without an event in between
constexpr std::size_t kErrorBytesMax = 64 << 10;  // of the body of a refusal that are read

std::optional<std::int64_t> count_in(std::string_view text) {
  std::int64_t number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// Server-sent events, as their bytes arrive. `last_id` and `retry` are what the stream has said so far.
class Events {
 public:
  std::string last_id;
  std::chrono::milliseconds retry = kResumePause;

  template <class Take>
  void add(std::string_view bytes, const Take& take) {
    rest_ += bytes;
    std::size_t begin = 0;
    for (auto end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
      std::string_view line = std::string_view(rest_).substr(begin, end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      begin = end + 1;
      if (line.empty()) {
        if (!data_.empty()) take(std::string_view(data_));
        data_.clear();
      } else if (const auto data = field(line, "data")) {
        if (!data_.empty()) data_ += '\n';
        data_ += *data;
      } else if (const auto id = field(line, "id")) {
        if (id->find('\0') == std::string_view::npos) last_id = *id;
      } else if (const auto time = field(line, "retry")) {
        if (const auto ms = count_in(*time))
          retry = std::chrono::milliseconds(std::min<std::int64_t>(*ms, kResumePauseMax.count()));
      }
    }
    rest_.erase(0, begin);
  }
  // What a connection left unfinished is sent again.
  void reconnect() {
    rest_.clear();
    data_.clear();
  }

 private:
  static std::optional<std::string_view> field(std::string_view line, std::string_view name) {
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") return std::nullopt;
    line.remove_prefix(name.size() + 1);
    if (line.starts_with(' ')) line.remove_prefix(1);
    return line;
  }
  std::string rest_, data_;
};

// The message of an error that a server sends as JSON-RPC, or "".
std::string message_in(std::string_view body) {
  try {
    const Value value = Value::parse(body, "the refusal", 1000);
    const Value* error = value.is_object() ? value.find("error") : nullptr;
    const Value* message = error && error->is_object() ? error->find("message") : nullptr;
    return message && message->is_string() ? message->string().substr(0, 500) : "";
  } catch (const Error&) {
    return "";
  }
}

class McpHttp : public serve::McpTransport {
 public:
  explicit McpHttp(const McpHttpOptions& options) : options_(options), url_(HttpUrl::parse(options.url)) {}

  ~McpHttp() override {
    listening_ = {};
    std::list<Post> posts;
    {
      const std::lock_guard lock(mutex_);
      posts.swap(posts_);
    }
    for (Post& each : posts) each.thread.request_stop();
    for (Post& each : posts) each.thread.join();
    if (session_.empty()) return;
    try {
      HttpRequest request = request_of("DELETE");
      request.deadline = op::Clock::now() + 2s;
      http_request(request);
    } catch (const std::exception&) {  // the server forgets the session some day
    }
  }

  void start(serve::McpReports reports) override { reports_ = std::move(reports); }

  void agreed(const std::string& version) override {
    const std::lock_guard lock(mutex_);
    version_ = version;
  }

  void forget_session() override {
    const std::lock_guard lock(mutex_);
    session_.clear();
    version_.clear();
  }

  void send(const std::string& message, std::int64_t id) override {
    HttpRequest request = request_of("POST");
    request.headers.emplace_back("Content-Type", "application/json");
    request.body = message;
    // What has no answer has arrived before the next message is sent: servers refuse requests before they are told to begin.
    if (id == 0) {
      request.deadline = op::Clock::now() + 30s;
      const HttpReply reply = http_request(request);
      if (!is_success(reply.status)) throw op::OperationError("UNAVAILABLE", refusal(reply.status, reply.body));
      return;
    }
    const std::lock_guard lock(mutex_);
    for (auto at = posts_.begin(); at != posts_.end();) {
      const auto each = at++;
      if (each->done) posts_.erase(each);
    }
    Post& post = posts_.emplace_back();
    post.id = id;
    post.thread = std::jthread([this, &post, request = std::move(request)](const std::stop_token& stop) mutable {
      request.stop = stop;
      if (auto failure = run(request, post.id); failure && !stop.stop_requested())
        reports_.failed(post.id, std::move(*failure));
      const std::lock_guard guard(mutex_);
      post.done = true;
    });
  }

  void listen() override {
    const std::lock_guard lock(listening_mutex_);
    listening_ = std::jthread([this](const std::stop_token& stop) { hear(stop); });
  }

  void drop(std::int64_t id) override {
    const std::lock_guard lock(mutex_);
    for (Post& each : posts_)
      if (each.id == id) each.thread.request_stop();
  }

 private:
  struct Post {
    std::int64_t id = 0;
    bool done = false;
    std::jthread thread;
  };
  // What one connection brought.
  struct Connection {
    bool answered = false, streams = false, was_sent = false;
    std::optional<McpFailure> failure;
  };

  static bool is_success(int status) { return status >= 200 && status <= 299; }

  HttpRequest request_of(std::string method) {
    HttpRequest request{.method = std::move(method), .url = url_, .tls = options_.tls};
    request.headers = {{"Accept", "application/json, text/event-stream"}};
    if (!options_.token.empty()) request.headers.emplace_back("Authorization", "Bearer " + options_.token);
    const std::lock_guard lock(mutex_);
    if (!session_.empty()) request.headers.emplace_back("Mcp-Session-Id", session_);
    if (!version_.empty()) request.headers.emplace_back("MCP-Protocol-Version", version_);
    return request;
  }

  std::string refusal(int status, std::string_view body) const {
    std::string text = fmt::format("the MCP server at {} answers with status {}", url_.authority(), status);
    if (const std::string said = message_in(body); !said.empty()) text += ": " + quote(said, 500);
    if (status == 401 || status == 403)
      text += options_.token.empty() ? "; it wants a token" : "; it refuses the token";
    return text;
  }

  McpFailure failure_of(const HttpReply& head, std::string_view body, bool has_session) const {
    McpFailure failure{.kind = McpFailure::Kind::refused, .reason = refusal(head.status, body)};
    if (head.status == 404 && has_session) failure.kind = McpFailure::Kind::expired;
    if (head.status >= 500 || head.status == 408) failure.kind = McpFailure::Kind::unknown;
    if (head.status == 429 || head.status == 503) {
      failure.kind = McpFailure::Kind::not_run;
      if (const auto seconds = count_in(head.header("Retry-After")))
        failure.wait = std::chrono::seconds(std::min<std::int64_t>(*seconds, 86'400));
    }
    return failure;
  }

  // Sends a request and takes what comes, until the answer to message `id` has come or the connection ends.
  Connection connect(HttpRequest& request, std::int64_t id, Events& events) {
    Connection connection;
    request.was_sent = &connection.was_sent;
    request.deadline = op::Clock::now() + 24h;  // calls have deadlines of their own
    const bool has_session = std::any_of(request.headers.begin(), request.headers.end(),
                                         [](const auto& each) { return each.first == "Mcp-Session-Id"; });
    std::string whole;
    bool began = false;
    const auto begin = [&](const HttpReply& head) {
      began = true;
      if (!is_success(head.status)) return;
      connection.streams = head.header("Content-Type").starts_with("text/event-stream");
      if (const std::string_view name = head.header("Mcp-Session-Id"); !name.empty() && !has_session) {
        const std::lock_guard lock(mutex_);
        session_ = name;
      }
    };
    const auto take = [&](std::string_view message) { connection.answered |= reports_.take(message) == id; };
    try {
      const HttpReply reply = http_request(request, [&](const HttpReply& head, std::string_view bytes) {
        if (!began) begin(head);
        if (connection.streams) {
          events.add(bytes, take);
          return !connection.answered;
        }
        whole += bytes;
        return is_success(head.status) || whole.size() < kErrorBytesMax;
      });
      if (!began) begin(reply);
      if (is_success(reply.status)) {
        if (!whole.empty()) take(whole);
        return connection;
      }
      connection.failure = failure_of(reply, whole, has_session);
      // A refusal may be an answer of JSON-RPC at the same time, with an error that says more.
      if (connection.failure->kind == McpFailure::Kind::refused && !whole.empty()) take(whole);
    } catch (const op::OperationError& error) {
      connection.failure = {.kind = !connection.was_sent          ? McpFailure::Kind::not_run
                                    : error.code() == "TOO_LARGE" ? McpFailure::Kind::refused
                                                                  : McpFailure::Kind::unknown,
                            .reason = error.what()};
    } catch (const std::exception& error) {
      connection.failure = {.kind = McpFailure::Kind::refused, .reason = error.what()};
    }
    return connection;
  }

  // Sends a request. If its stream of events breaks after an event with an id, asks for the events that follow. Returns the
  // reason if there is no answer.
  std::optional<McpFailure> run(HttpRequest& request, std::int64_t id) {
    Events events;
    Connection connection = connect(request, id, events);
    int without_event = 0;
    while (!connection.answered && !events.last_id.empty() && without_event < kResumesMax &&
           wait(request.stop, events.retry)) {
      const std::string last = events.last_id;
      events.reconnect();
      HttpRequest again = request_of("GET");
      again.headers[0].second = "text/event-stream";
      again.headers.emplace_back("Last-Event-ID", last);
      again.stop = request.stop;
      const Connection resumed = connect(again, id, events);
      connection.answered = resumed.answered;
      if (resumed.failure && resumed.failure->kind != McpFailure::Kind::not_run &&
          resumed.failure->kind != McpFailure::Kind::unknown)
        break;  // the server does not resume streams
      without_event = events.last_id == last ? without_event + 1 : 0;
    }
    if (connection.answered) return std::nullopt;
    if (connection.failure && !connection.streams) return connection.failure;
    return McpFailure{.reason =
                          fmt::format("the MCP server at {} ended the connection without an answer", url_.authority())};
  }

  // Takes what the server sends of its own accord, while the server offers such a stream.
  void hear(const std::stop_token& stop) {
    Events events;
    do {
      HttpRequest request = request_of("GET");
      request.headers[0].second = "text/event-stream";
      if (!events.last_id.empty()) request.headers.emplace_back("Last-Event-ID", events.last_id);
      request.stop = stop;
      events.reconnect();
      const Connection connection = connect(request, kNoRequest, events);
      const auto& failure = connection.failure;
      if (failure && (failure->kind == McpFailure::Kind::refused || failure->kind == McpFailure::Kind::expired)) return;
      if (!failure && !connection.streams) return;
    } while (wait(stop, events.retry));
  }

  // False if the request is dropped meanwhile.
  static bool wait(const std::stop_token& stop, std::chrono::milliseconds time) {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    changed.wait_for(lock, stop, time, [] { return false; });
    return !stop.stop_requested();
  }

  const McpHttpOptions options_;
  const HttpUrl url_;
  serve::McpReports reports_;
  std::mutex mutex_;
  std::list<Post> posts_;
  std::string session_, version_;
  std::mutex listening_mutex_;
  std::jthread listening_;
};

}  // namespace

std::unique_ptr<serve::McpTransport> mcp_over_http(const McpHttpOptions& options) {
  return std::make_unique<McpHttp>(options);
}

}  // namespace weft::remote
