#include "remote/http/openapi_client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "catalogue/wire.hpp"
#include "serve/openapi_import.hpp"
#include "serve/service.hpp"

namespace weft::remote {
namespace {

namespace op = operations;

constexpr std::size_t kDescriptionBytesMax = std::size_t{16} << 20;
constexpr std::uint64_t kDescriptionValuesMax = 1'000'000;

class OpenApiClient : public serve::Caller {
 public:
  explicit OpenApiClient(const OpenApiClientOptions& options) : options_(options) {
    const bool fetched = options.place.starts_with("http://") || options.place.starts_with("https://");
    std::string text, own_host;
    if (fetched) {
      const HttpUrl url = HttpUrl::parse(options.place);
      own_host = url.authority();
      const HttpReply reply = send({.url = url, .body_bytes_max = kDescriptionBytesMax}, options.service.empty());
      if (reply.status != 200)
        throw op::OperationError("UNAVAILABLE", fmt::format("{} answers with status {}", own_host, reply.status));
      text = reply.body;
    } else {
      text = read_text_file(options.place);
      if (text.size() > kDescriptionBytesMax)
        throw FileError(fmt::format("{}: a description has at most {} bytes", options.place, kDescriptionBytesMax));
    }
    const bool is_schema = !options.service.empty();
    const Value description =
        Value::parse(text, is_schema ? "the JSON Schema document" : "the OpenAPI description", kDescriptionValuesMax);
    // Whoever gives the URL of a service allows its host.
    if (is_schema) own_host = HttpUrl::parse(options.service + "/").authority();
    for (serve::HttpOperation& each : is_schema
                                          ? serve::read_schema_operations(description, options.service, options.space)
                                          : serve::read_openapi(description, {.base = fetched ? options.place : ""})) {
      const std::string host = HttpUrl::parse(each.server + "/").authority();
      if (host != own_host &&
          std::find(options.allow_hosts.begin(), options.allow_hosts.end(), host) == options.allow_hosts.end())
        throw UsageError(fmt::format("the OpenAPI description would have {} called; allow that with --allow-host {}",
                                     quote(host, 100), host));
      std::string id = each.specification.id();
      operations_.emplace(std::move(id), std::move(each));
    }
  }

  std::vector<op::Specification> operations() override {
    std::vector<op::Specification> all;
    for (const auto& [id, each] : operations_) {
      all.push_back(each.specification);
      all.back().errors.push_back(
          {.code = "HTTP_ERROR", .description = "the service answered with another status than success"});
    }
    return all;
  }

  void run(std::string_view id, const Value& input, const serve::RemoteCallOptions& options,
           const std::function<bool(op::Envelope)>& take) override {
    const auto found = operations_.find(id);
    if (found == operations_.end())
      throw op::OperationError(op::kNotFound, fmt::format("there is no operation {}", quote(id, 80)));
    const serve::HttpOperation& operation = found->second;
    const HttpUrl url = HttpUrl::parse(operation.url(input));
    HttpRequest asked{.method = operation.method, .url = url, .deadline = options.deadline, .stop = options.stop};
    for (const auto& [name, in] : operation.parameters)
      if (const Value* value = input.find(name); in == "header" && value && value->is_string()) {
        const std::string& text = value->string();
        if (std::any_of(text.begin(), text.end(),
                        [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }))
          throw op::OperationError(op::kValidationError,
                                   fmt::format("the header {} has control characters", quote(name, 80)));
        asked.headers.emplace_back(name, text);
      }
    if (!options.request_id.empty()) asked.headers.emplace_back("Weft-Request-Id", options.request_id);
    if (!options.via.empty()) asked.headers.emplace_back("Weft-Via", serve::via_text(options.via));
    if (const Value* body = operation.body(input)) {
      asked.headers.emplace_back("Content-Type", "application/json");
      asked.body = op::to_wire(*body, op::WireTensors::data, handles_, "").to_json();
    }
    const HttpReply reply = send(std::move(asked));
    const bool is_json = reply.header("Content-Type").starts_with("application/json");
    Value data = reply.body;
    if (is_json && !reply.body.empty()) {
      try {
        data = Value::parse(reply.body, "the answer", kDescriptionValuesMax);
      } catch (const Error& error) {
        throw op::OperationError(op::kExecutionError,
                                 fmt::format("{}: the answer cannot be read: {}", id, error.what()));
      }
    }
    if (reply.status < 200 || reply.status > 299)
      throw op::OperationError("HTTP_ERROR", fmt::format("{} answers with status {}", url.authority(), reply.status),
                               Value::object({{"status", reply.status}, {"body", std::move(data)}}));
    take({.data = std::move(data),
          .source = op::HttpSource{.status_code = reply.status,
                                   .headers = reply.headers,
                                   .content_type = std::string(reply.header("Content-Type"))}});
  }

 private:
  HttpReply send(HttpRequest asked, bool with_token = true) const {
    asked.tls = options_.tls;
    asked.headers.emplace_back("Accept", "application/json");
    if (with_token && !options_.token.empty()) asked.headers.emplace_back("Authorization", "Bearer " + options_.token);
    return http_request(asked);
  }

  const OpenApiClientOptions options_;
  std::map<std::string, serve::HttpOperation, std::less<>> operations_;
  op::Handles handles_;  // none: bodies have their tensors' bytes
};

}  // namespace

std::shared_ptr<serve::Caller> call_openapi(const OpenApiClientOptions& options) {
  return std::make_shared<OpenApiClient>(options);
}

}  // namespace weft::remote
