#include "jinja/template.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/utf8.hpp"
#include "jinja/ast.hpp"
#include "jinja/interpreter.hpp"
#include "jinja/lexer.hpp"
#include "weft/error.hpp"

namespace weft::jinja {

struct Template::Parsed {
  Tree tree;
};

namespace {

std::string message(std::string_view name, std::string_view source, std::size_t position, std::string_view fact,
                    std::string_view cure) {
  const Place place = place_of(source, position);
  return fmt::format("{}: line {}, column {}: {}{}{}", name, place.line, place.column, fact, cure.empty() ? "" : "; ",
                     cure);
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm broken_down{};
  localtime_r(&now, &broken_down);
  return broken_down;
}

// Empties namespaces at the end, also after errors, because they can refer to each other.
struct Context : FunctionContext {
  ~Context() {
    for (const auto& each : namespaces) each->clear();
  }
};

Rendered in_segments(const TextBuilder& out) {
  Rendered rendered;
  const std::string& bytes = out.bytes();
  std::size_t at = 0;
  const auto add = [&](std::size_t end, bool from_user) {
    if (end > at) rendered.segments.push_back({bytes.substr(at, end - at), from_user});
    at = end;
  };
  for (const ByteRange& range : out.user()) {
    add(range.begin, false);
    add(range.end, true);
  }
  add(bytes.size(), false);
  return rendered;
}

}  // namespace

std::string Rendered::text() const {
  std::string out;
  for (const Segment& segment : segments) out += segment.text;
  return out;
}

Template::Template(std::string_view source, std::string name, TemplateLimits limits)
    : name_(std::move(name)), limits_(limits) {
  require_utf8(source, name_);
  try {
    parsed_ = std::make_shared<const Parsed>(
        Parsed{parse_template(source, {limits_.max_source_bytes, limits_.max_source_depth})});
  } catch (const SyntaxFault& fault) {
    throw FileError(message(name_, normalized_source(source), fault.position, fault.fact, fault.cure));
  }
}

Rendered Template::render(const std::vector<TemplateVariable>& variables, const std::optional<std::tm>& now) const {
  // Destroyed last, because every value charges it.
  const Budget budget({limits_.max_memory_bytes, limits_.max_iterations, limits_.max_depth, limits_.max_time});
  Context context;
  context.now = now ? *now : local_time();
  const Tree& tree = parsed_->tree;
  Interpreter interpreter(tree, context, limits_.max_output_bytes);
  try {
    for (const TemplateVariable& variable : variables)
      interpreter.define(variable.name, from_json(variable.value, variable.from_user, variable.name));
    return in_segments(interpreter.run());
  } catch (const Fault& fault) {
    throw UsageError(message(name_, tree.source, interpreter.position(), fault.fact, fault.cure));
  }
}

}  // namespace weft::jinja
