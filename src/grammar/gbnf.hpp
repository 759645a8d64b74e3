// GBNF, the grammars of llama.cpp.
#pragma once

#include <string_view>

#include "grammar/network.hpp"

namespace weft::grammar {

/// Adds the rules of a text such as
///
///     root   ::= answer " because " [^.\n]{1,200} "."   # a comment
///     answer ::= "yes" | "no"
///
/// to a network, and gives its root. Literals and classes have the escapes \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH;
/// `.` is any character; * + ? {n} {n,} {,n} {n,m} repeat. A rule goes on over a line break inside of parentheses, and before
/// and after "::=" and |. Errors: UsageError "SOURCE:LINE: fact", for texts of another form, and for rules that are not
/// defined or defined twice.
RuleId add_gbnf(NetworkBuilder& network, std::string_view text, std::string_view source);

}  // namespace weft::grammar
