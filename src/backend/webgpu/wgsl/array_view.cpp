#include "backend/webgpu/wgsl/array_view.hpp"

#include <fmt/format.h>

#include <cctype>

#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr std::string_view kVectorNames[] = {"vec2<", "vec4<"};

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The place after the bracket that closes the one at `open`.
std::size_t after_bracket(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == '[' || text[at] == '(') ++depth;
    if ((text[at] == ']' || text[at] == ')') && --depth == 0) return at + 1;
  }
  throw InternalError("webgpu: a bracket of a shader is not closed");
}

std::size_t after_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && text[at] == ' ') ++at;
  return at;
}

/// Whether the text at `at` assigns to what stands before it; `plain`: with `=`.
enum class Assignment { none, plain, compound };
Assignment assignment_at(std::string_view text, std::size_t at) {
  const auto has = [&](std::size_t i, char c) { return i < text.size() && text[i] == c; };
  if (has(at, '=')) return has(at + 1, '=') ? Assignment::none : Assignment::plain;
  if (at < text.size() && std::string_view("+-*/%|&^").find(text[at]) != std::string_view::npos && has(at + 1, '='))
    return Assignment::compound;
  return Assignment::none;
}

/// Where the mark is in the text, from `begin` on; data12 is not data1.
std::size_t find_mark(std::string_view text, std::string_view mark, std::size_t begin) {
  std::size_t at = text.find(mark, begin);
  while (at != std::string_view::npos && at + mark.size() < text.size() && is_name_character(text[at + mark.size()]))
    at = text.find(mark, at + mark.size());
  return at;
}

class Rewriter {
 public:
  explicit Rewriter(const ArrayView& view) : view_(view), mark_("$" + view.name) {}

  /// Empty if `failed()`.
  std::string rewritten(std::string_view text) {
    std::string out;
    std::size_t done = 0;
    while (!failed_) {
      const std::size_t at = find_mark(text, mark_, done);
      if (at == std::string_view::npos) break;
      const std::size_t open = at + mark_.size();
      out += text.substr(done, at - done);
      if (open >= text.size() || text[open] != '[' || (at > 0 && text[at - 1] == '&')) {
        failed_ = true;
        break;
      }
      done = append_access(text, open, out);
    }
    return failed_ ? std::string() : out + std::string(text.substr(done));
  }
  bool failed() const { return failed_; }

 private:
  /// Returns where the text goes on.
  std::size_t append_access(std::string_view text, std::size_t open, std::string& out) {
    const std::size_t close = after_bracket(text, open);
    const std::string index = rewritten(text.substr(open + 1, close - open - 2));
    if (view_.element.lanes == 1) {
      out += view_.base == 0 ? fmt::format("${}[{}]", view_.target, index)
                             : fmt::format("${}[({}) + {}u]", view_.target, index, view_.base);
      return close;
    }
    const std::size_t next = after_spaces(text, close);
    switch (assignment_at(text, next)) {
      case Assignment::compound: failed_ = true; return close;
      case Assignment::plain: {
        const std::size_t end = text.find(';', next);
        if (end == std::string_view::npos) throw InternalError("webgpu: a statement of a shader does not end");
        const std::string value = rewritten(text.substr(next + 1, end - next - 1));
        out += fmt::format("${}_store({},{})", view_.functions, index, value);
        return end;
      }
      case Assignment::none: break;
    }
    // A part of a vector may be read, but not changed.
    std::size_t part = next;
    if (part < text.size() && text[part] == '[') part = after_bracket(text, part);
    if (part < text.size() && text[part] == '.')
      for (++part; part < text.size() && is_name_character(text[part]);) ++part;
    if (part != next && assignment_at(text, after_spaces(text, part)) != Assignment::none) failed_ = true;
    out += fmt::format("${}_load({})", view_.functions, index);
    return close;
  }

  const ArrayView& view_;
  const std::string mark_;
  bool failed_ = false;
};

std::string vector_type(const ArrayElement& element) { return fmt::format("vec{}<{}>", element.lanes, element.scalar); }

}  // namespace

std::optional<ArrayElement> array_element(std::string_view type) {
  if (type.starts_with("atomic")) return {};
  for (const std::string_view vector : kVectorNames)
    if (type.starts_with(vector))
      return ArrayElement{std::string(type.substr(vector.size(), type.size() - vector.size() - 1)), vector[3] - '0'};
  return ArrayElement{std::string(type), 1};
}

bool is_read(std::string_view text, std::string_view name) {
  const std::string mark = fmt::format("${}", name);
  for (std::size_t at = find_mark(text, mark, 0); at != std::string_view::npos;) {
    const std::size_t open = at + mark.size();
    if (open >= text.size() || text[open] != '[' || (at > 0 && text[at - 1] == '&')) return true;
    const std::size_t close = after_bracket(text, open);
    if (assignment_at(text, after_spaces(text, close)) != Assignment::plain) return true;
    at = find_mark(text, mark, open);
  }
  return false;
}

std::optional<std::string> with_view(std::string_view text, const ArrayView& view) {
  Rewriter rewriter(view);
  std::string result = rewriter.rewritten(text);
  if (rewriter.failed()) return {};
  return result;
}

void declare_view(const ArrayView& view, ShaderPieces& shader) {
  if (view.element.lanes == 1) return;
  const std::string type = vector_type(view.element);
  std::string parts, stores;
  for (int lane = 0; lane < view.element.lanes; ++lane) {
    parts += fmt::format("{}${}[at + {}u]", lane ? ", " : "", view.target, lane);
    stores += fmt::format(" ${}[at + {}u] = value.{};", view.target, lane, "xyzw"[lane]);
  }
  const std::string at = fmt::format("let at = index * {}u + {}u;", view.element.lanes, view.base);
  shader.functions.push_back(
      {view.functions + "_load", fmt::format("(index: u32) -> {} {{ {} return {}({}); }}\n", type, at, type, parts)});
  shader.functions.push_back(
      {view.functions + "_store", fmt::format("(index: u32, value: {}) {{ {}{} }}\n", type, at, stores)});
}

}  // namespace weft::webgpu
