#include "remote/http/mcp_transport.hpp"

#include <fmt/format.h>

#include <list>
#include <mutex>
#include <thread>

#include "serve/mcp.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
using namespace std::chrono_literals;

// The data of server-sent events, as they arrive.
class Events {
 public:
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
      } else if (line.starts_with("data:")) {
        line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
        if (!data_.empty()) data_ += '\n';
        data_ += line;
      }
    }
    rest_.erase(0, begin);
  }

 private:
  std::string rest_, data_;
};

class McpHttp : public serve::McpTransport {
 public:
  explicit McpHttp(const McpHttpOptions& options) : options_(options), url_(HttpUrl::parse(options.url)) {}

  ~McpHttp() override {
    stop_.request_stop();
    std::list<Post> posts;
    std::string session;
    {
      const std::lock_guard lock(mutex_);
      posts.swap(posts_);
      session = session_;
    }
    for (Post& each : posts) each.thread.join();
    if (session.empty()) return;
    try {
      HttpRequest request = request_of("DELETE");
      request.deadline = op::Clock::now() + 2s;
      http_request(request);
    } catch (const std::exception&) {  // the server forgets the session some day
    }
  }

  void start(std::function<void(std::string_view)> take, std::function<void(std::string)> gone) override {
    take_ = std::move(take);
    gone_ = std::move(gone);
  }

  void agreed(const std::string& version) override {
    const std::lock_guard lock(mutex_);
    version_ = version;
  }

  void send(const std::string& message) override {
    // What has no answer has arrived before the next message is sent: servers refuse requests before they are told to begin.
    if (!serve::look_at_mcp(message).is_request) return post(message);
    const std::lock_guard lock(mutex_);
    for (auto at = posts_.begin(); at != posts_.end();) {
      const auto each = at++;
      if (!each->done) continue;
      each->thread.join();
      posts_.erase(each);
    }
    posts_.emplace_back();
    const auto place = std::prev(posts_.end());
    place->thread = std::thread([this, place, message] {
      post(message);
      const std::lock_guard guard(mutex_);
      place->done = true;
    });
  }

 private:
  struct Post {
    std::thread thread;
    bool done = false;
  };

  HttpRequest request_of(std::string method) {
    HttpRequest request{.method = std::move(method), .url = url_, .tls = options_.tls};
    request.headers = {{"Accept", "application/json, text/event-stream"}};
    if (!options_.token.empty()) request.headers.emplace_back("Authorization", "Bearer " + options_.token);
    const std::lock_guard lock(mutex_);
    if (!session_.empty()) request.headers.emplace_back("Mcp-Session-Id", session_);
    if (!version_.empty()) request.headers.emplace_back("MCP-Protocol-Version", version_);
    return request;
  }

  void post(const std::string& message) {
    try {
      HttpRequest request = request_of("POST");
      request.headers.emplace_back("Content-Type", "application/json");
      request.body = message;
      request.stop = stop_.get_token();
      request.deadline = op::Clock::now() + 24h;  // calls have deadlines of their own
      Events events;
      std::string whole;
      bool began = false, streams = false;
      const auto begin = [&](const HttpReply& head) {
        began = true;
        if (head.status < 200 || head.status > 299)
          throw op::OperationError(
              "UNAVAILABLE", fmt::format("the MCP server at {} answers with status {}", url_.authority(), head.status));
        streams = head.header("Content-Type").starts_with("text/event-stream");
        if (const std::string_view name = head.header("Mcp-Session-Id"); !name.empty()) {
          const std::lock_guard lock(mutex_);
          session_ = name;
        }
      };
      const HttpReply reply = http_request(request, [&](const HttpReply& head, std::string_view bytes) {
        if (!began) begin(head);
        if (streams)
          events.add(bytes, take_);
        else
          whole += bytes;
        return true;
      });
      if (!began) begin(reply);
      if (!whole.empty()) take_(whole);
    } catch (const std::exception& error) {
      if (!stop_.stop_requested()) gone_(error.what());
    }
  }

  const McpHttpOptions options_;
  const HttpUrl url_;
  std::function<void(std::string_view)> take_;
  std::function<void(std::string)> gone_;
  std::mutex mutex_;
  std::list<Post> posts_;
  std::string session_, version_;
  std::stop_source stop_;
};

}  // namespace

std::unique_ptr<serve::McpTransport> mcp_over_http(const McpHttpOptions& options) {
  return std::make_unique<McpHttp>(options);
}

}  // namespace weft::remote
