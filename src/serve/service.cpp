#include "serve/service.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::serve {
namespace {

namespace op = operations;
constexpr std::size_t kTokenBytesMin = 16;
constexpr std::size_t kTokenBytesMax = 4096;

// Takes the same time wherever two texts of one length differ.
bool same_text(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

std::vector<std::string> texts(const Value& list) {
  std::vector<std::string> all;
  for (const Value& each : list.elements()) all.push_back(each.string());
  return all;
}

const schema::Schema& tokens_schema() {
  static const schema::Schema schema = schema::Schema::parse(R"({
    "type": "object", "required": ["tokens"], "additionalProperties": false,
    "properties": {"tokens": {"type": "array", "items": {
      "type": "object", "required": ["token", "id"], "additionalProperties": false,
      "properties": {
        "token": {"type": "string"},
        "id": {"type": "string", "minLength": 1},
        "scopes": {"type": "array", "items": {"type": "string"}},
        "resources": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}}}}}}})");
  return schema;
}

}  // namespace

op::Subscription Service::start(std::string_view id, Value input, op::CallOptions options) const {
  const std::string owner = options.identity ? options.identity->id : "";
  return exchange.subscribe(id, op::from_wire(std::move(input), handles, owner), options);
}

Value Service::answer(const op::Envelope& envelope, op::WireTensors form, const op::Holder& holder) const {
  return op::to_wire(op::to_value(envelope), form, handles, holder);
}

Value to_value(const op::OperationError& error) {
  Value::Object object{{"code", error.code()}, {"message", error.what()}};
  if (!error.details().is_null()) object.set("details", error.details());
  return object;
}

std::string via_text(const std::vector<std::string>& via) { return fmt::format("{}", fmt::join(via, ",")); }

std::vector<std::string> read_via(std::string_view text) {
  constexpr std::size_t kNamesMax = 32, kNameBytesMax = 64;
  std::vector<std::string> via;
  while (!text.empty()) {
    const auto comma = text.find(',');
    std::string_view name = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    while (name.starts_with(' ')) name.remove_prefix(1);
    while (name.ends_with(' ')) name.remove_suffix(1);
    const bool good = !name.empty() && name.size() <= kNameBytesMax &&
                      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; });
    if (!good || via.size() == kNamesMax)
      throw op::OperationError(
          op::kValidationError,
          fmt::format("Weft-Via is not a list of at most {} names with commas between", kNamesMax));
    via.emplace_back(name);
  }
  return via;
}

int http_status(const op::OperationError& error, const op::Specification* specification) {
  struct Row {
    std::string_view code;
    int status;
  };
  static constexpr Row kRows[] = {{op::kNotFound, 404}, {op::kAccessDenied, 403}, {op::kValidationError, 400},
                                  {op::kTimeout, 504},  {op::kAborted, 409},      {op::kOverloaded, 503},
                                  {op::kLoop, 508}};
  for (const Row& row : kRows)
    if (error.code() == row.code) return row.status;
  if (specification)
    for (const op::DeclaredError& declared : specification->errors)
      if (declared.code == error.code()) return declared.http_status;
  return 500;
}

Tokens Tokens::load(const std::filesystem::path& path, const op::Registry& registry) {
  const Value file = Value::parse(read_text_file(path), path.string());
  if (const auto violations = tokens_schema().check(file); !violations.empty()) {
    // A message of the schema may show a value, and that may be a token.
    throw FileError(fmt::format(
        "{}: {} is not as a file of tokens has it: {{\"tokens\": [{{\"token\", \"id\", \"scopes\", \"resources\"}}]}}",
        path.string(), violations[0].instance_path.empty() ? "the content" : violations[0].instance_path));
  }
  Tokens tokens;
  for (const Value& each : file["tokens"].elements()) {
    const std::size_t number = tokens.entries_.size() + 1;
    const std::string& token = each["token"].string();
    const bool visible = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 0x7f; });
    if (token.size() < kTokenBytesMin || token.size() > kTokenBytesMax || !visible)
      throw FileError(fmt::format("{}: token {} must have {} to {} visible ASCII characters", path.string(), number,
                                  kTokenBytesMin, kTokenBytesMax));
    if (tokens.find(token)) throw FileError(fmt::format("{}: token {} is given twice", path.string(), number));
    op::Identity identity{.id = each["id"].string()};
    if (const Value* scopes = each.find("scopes")) identity.scopes = texts(*scopes);
    if (identity.scopes == std::vector<std::string>{"*"}) identity.scopes = registry.owner().scopes;
    if (const Value* resources = each.find("resources"))
      for (const auto& [key, actions] : resources->members()) identity.resources.emplace(key, texts(actions));
    tokens.entries_.push_back({token, std::move(identity)});
  }
  return tokens;
}

const op::Identity* Tokens::find(std::string_view token) const {
  const op::Identity* found = nullptr;
  for (const Entry& entry : entries_)
    if (same_text(entry.token, token)) found = &entry.identity;
  return found;
}

}  // namespace weft::serve
