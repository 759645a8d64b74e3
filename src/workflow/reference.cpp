#include "workflow/reference.hpp"

#include <fmt/format.h>

#include <charconv>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::workflow {
namespace {

constexpr std::size_t kBytesMax = 1024;
constexpr int kValuesDeep = 100;

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Reads the parts behind "$".
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), rest_(text.substr(1)) {}

  Reference read() {
    if (text_.size() > kBytesMax) refuse("it is too long");
    Reference reference;
    Step first = step();
    if (first.is_bracket && first.index) refuse("it begins with an index; it begins with a name");
    reference.name = first.name;
    while (!rest_.empty()) reference.steps.push_back(step());
    return reference;
  }

 private:
  [[noreturn]] void refuse(std::string_view fact) const {
    throw UsageError(fmt::format("{} is not a reference: {}", quote(text_), fact));
  }
  Step step() {
    const char mark = rest_.front();
    rest_.remove_prefix(1);
    if (mark == '.') {
      const std::string_view name = rest_.substr(0, rest_.find_first_of(".["));
      if (name.empty()) refuse("a name is missing behind a dot");
      rest_.remove_prefix(name.size());
      return {std::string(name), number_in(name), false};
    }
    if (mark != '[') refuse("behind a name comes a dot or a bracket");
    const auto end = rest_.starts_with('"') ? rest_.find("\"]", 1) : rest_.find(']');
    if (end == std::string_view::npos) refuse("a bracket does not end");
    const std::string_view inside = rest_.substr(0, end + (rest_.starts_with('"') ? 1 : 0));
    rest_.remove_prefix(inside.size() + 1);
    if (inside.starts_with('"')) return {Value::parse(inside, "a bracket").string(), std::nullopt, true};
    const auto index = number_in(inside);
    if (!index) refuse("a bracket has an index, or a name in quotes");
    return {std::string(inside), index, true};
  }

  std::string_view text_, rest_;
};

const Value& followed(const Value& root, const Reference& reference, const std::string& text) {
  const Value* value = &root;
  for (const Step& step : reference.steps) {
    const Value* next = nullptr;
    if (value->is_array() && step.index)
      next = *step.index < value->elements().size() ? &value->elements()[*step.index] : nullptr;
    else if (value->is_object() && (!step.is_bracket || !step.index))
      next = value->find(step.name);
    if (!next) throw UsageError(fmt::format("{}: {} has no {}", quote(text), name_of(value->kind()), quote(step.name)));
    value = next;
  }
  return *value;
}

void visit_all(const Value& value, const std::string& path,
               const std::function<void(const std::string&, const std::string&)>& visit, int depth) {
  if (depth > kValuesDeep) throw UsageError(fmt::format("{}: nested deeper than {}", path, kValuesDeep));
  if (value.is_string() && is_reference(value.string())) visit(value.string(), path);
  if (value.is_array())
    for (std::size_t i = 0; i < value.elements().size(); ++i)
      visit_all(value.elements()[i], fmt::format("{}/{}", path, i), visit, depth + 1);
  if (value.is_object())
    for (const auto& [name, member] : value.members())
      visit_all(member, fmt::format("{}/{}", path, pointer_part(name)), visit, depth + 1);
}

}  // namespace

bool is_reference(std::string_view text) { return text.starts_with("$.") || text.starts_with("$["); }
bool is_escaped(std::string_view text) { return text.starts_with("$$.") || text.starts_with("$$["); }

Reference parse_reference(std::string_view text) { return Parser(text).read(); }

void for_each_reference(const Value& value, const std::string& path,
                        const std::function<void(const std::string& text, const std::string& path)>& visit) {
  visit_all(value, path, visit, 0);
}

Value resolved(const Value& value, const std::function<const Value*(std::string_view name)>& find) {
  if (value.is_string()) {
    if (is_escaped(value.string())) return value.string().substr(1);
    if (!is_reference(value.string())) return value;
    const Reference reference = parse_reference(value.string());
    const Value* root = find(reference.name);
    if (!root) throw UsageError(fmt::format("{}: there is no result {}", quote(value.string()), quote(reference.name)));
    return followed(*root, reference, value.string());
  }
  if (value.is_array()) {
    Value::Array elements;
    for (const Value& each : value.elements()) elements.push_back(resolved(each, find));
    return elements;
  }
  if (value.is_object()) {
    std::vector<Value::Object::Member> members;
    for (const auto& [name, member] : value.members()) members.push_back({name, resolved(member, find)});
    return Value::Object(std::move(members));
  }
  return value;
}

std::string with_article(Value::Kind kind) {
  const bool is_vowel = kind == Value::Kind::integer || kind == Value::Kind::array || kind == Value::Kind::object;
  return fmt::format("{}{}", kind == Value::Kind::null ? "" : is_vowel ? "an " : "a ", name_of(kind));
}

std::string pointer_part(std::string_view name) {
  std::string part;
  for (const char c : name) part += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return part;
}

}  // namespace weft::workflow
