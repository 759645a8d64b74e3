// The face of grammars.
#include "weft/grammar.hpp"

#include "grammar/gbnf.hpp"
#include "grammar/json_schema.hpp"
#include "grammar/json_texts.hpp"
#include "grammar/token_matcher.hpp"
#include "weft/value.hpp"

namespace weft::llm {

Grammar::Grammar(grammar::CompiledGrammar compiled)
    : compiled_(std::make_shared<const grammar::CompiledGrammar>(std::move(compiled))) {}

Grammar Grammar::parse(std::string_view gbnf, std::string_view source) {
  grammar::NetworkBuilder builder;
  const grammar::RuleId root = grammar::add_gbnf(builder, gbnf, source);
  return Grammar({std::make_shared<const grammar::Network>(builder.finish(root)), false});
}

Grammar Grammar::json_schema(const Value& schema, const SchemaGrammarOptions& options) {
  grammar::NetworkBuilder builder;
  const grammar::JsonRules rules = grammar::add_json_schema(builder, schema, options.lenient);
  const grammar::RuleId root = builder.add_rule();
  const auto opening = grammar::literal(options.opening), closing = grammar::literal(options.closing);
  const auto json = grammar::rule(rules.root), line = grammar::optional(grammar::character('\n'));
  std::vector<grammar::ExpressionPtr> parts = {opening, json};
  if (!options.again.empty())
    parts.push_back(grammar::repeat(grammar::sequence({closing, line, grammar::literal(options.again), json}), 0));
  parts.push_back(grammar::optional(closing));
  builder.define(root, *grammar::sequence(std::move(parts)));
  return Grammar({std::make_shared<const grammar::Network>(builder.finish(root)), rules.has_open_objects});
}
Grammar Grammar::parse_json_schema(std::string_view text, const SchemaGrammarOptions& options,
                                   std::string_view source) {
  return json_schema(Value::parse(text, source), options);
}

Grammar Grammar::json_object() {
  grammar::NetworkBuilder builder;
  grammar::JsonTexts texts(builder);
  const grammar::RuleId root = builder.add_rule();
  builder.define(root, *texts.any_object(grammar::JsonTexts::kFreeDepth));
  return Grammar({std::make_shared<const grammar::Network>(builder.finish(root)), true});
}

namespace {

bool fits(const grammar::CompiledGrammar& compiled, std::string_view text, bool whole) {
  grammar::TokenMatcher matcher(compiled, std::make_shared<const grammar::TokenTrie>(std::vector<std::string>{}), {});
  grammar::TokenMatcher::State state;
  return matcher.accept_bytes(state, text) && (!whole || matcher.may_end(state));
}

}  // namespace

bool Grammar::accepts(std::string_view text) const { return fits(*compiled_, text, true); }
bool Grammar::accepts_beginning(std::string_view text) const { return fits(*compiled_, text, false); }

}  // namespace weft::llm
