#include "grammar/expression.hpp"

#include "base/utf8.hpp"

namespace weft::grammar {
namespace {

ExpressionPtr shared(Expression expression) { return std::make_shared<const Expression>(std::move(expression)); }

}  // namespace

ExpressionPtr characters(CodePoints set) {
  return shared({.kind = Expression::Kind::characters, .characters = std::move(set)});
}
ExpressionPtr character(char32_t c) { return characters(CodePoints::one(c)); }
ExpressionPtr sequence(std::vector<ExpressionPtr> parts) {
  return parts.size() == 1 ? parts[0] : shared({.kind = Expression::Kind::sequence, .parts = std::move(parts)});
}
ExpressionPtr choice(std::vector<ExpressionPtr> parts) {
  return parts.size() == 1 ? parts[0] : shared({.kind = Expression::Kind::choice, .parts = std::move(parts)});
}
ExpressionPtr repeat(ExpressionPtr part, std::size_t least, std::size_t most) {
  return shared({.kind = Expression::Kind::repeat, .parts = {std::move(part)}, .least = least, .most = most});
}
ExpressionPtr rule(RuleId id) { return shared({.kind = Expression::Kind::rule, .rule = id}); }

ExpressionPtr literal(std::string_view text) {
  std::vector<ExpressionPtr> parts;
  for (const char32_t c : decode_utf8(text)) parts.push_back(character(c));
  return sequence(std::move(parts));
}

}  // namespace weft::grammar
