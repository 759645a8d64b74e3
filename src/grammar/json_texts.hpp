// The rules of JSON itself, which the grammars of schemas share.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "grammar/network.hpp"
#include "weft/value.hpp"

namespace weft::grammar {

/// Makes the rules of JSON in a network when they are first asked for.
class JsonTexts {
 public:
  explicit JsonTexts(NetworkBuilder& network) : network_(network) {}

  /// Nothing, a space, or a line break with up to 32 spaces.
  ExpressionPtr space();
  /// A string with any contents and escapes; `characters` of them if bounded.
  ExpressionPtr string();
  ExpressionPtr string(std::size_t least, std::size_t most);
  /// A string with the contents of an automaton.
  ExpressionPtr string(const Regular& contents);
  /// This string, number, array or object.
  ExpressionPtr value(const Value& value);
  /// A key that is none of these, which are to be unique in the list, and fits an automaton if one is given.
  ExpressionPtr other_key(const std::vector<std::string_view>& names, const std::optional<Regular>& fits = {});
  /// Any value whose arrays and objects nest at most `depth` deep.
  ExpressionPtr any_value(int depth);
  ExpressionPtr any_object(int depth);
  ExpressionPtr any_array(int depth);
  ExpressionPtr any_number();
  static constexpr int kFreeDepth = 12;

  /// Parts of arrays and objects.
  ExpressionPtr comma();
  ExpressionPtr between(char open, ExpressionPtr inside, char close);
  ExpressionPtr member(ExpressionPtr key, ExpressionPtr value);

 private:
  ExpressionPtr kept(const std::string& name, const ExpressionPtr& expression);

  NetworkBuilder& network_;
  std::map<std::string, ExpressionPtr> kept_;  // calls of rules by their names
};

}  // namespace weft::grammar
