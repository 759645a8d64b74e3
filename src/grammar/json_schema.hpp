// JSON Schema as a grammar.
#pragma once

#include "grammar/network.hpp"
#include "weft/value.hpp"

namespace weft::grammar {

struct JsonRules {
  RuleId root;
  bool has_open_objects;  ///< some object may have keys that the schema does not name
};

/// Adds rules for the JSON texts that a schema accepts to a network (weft/grammar.hpp has the keywords and errors).
JsonRules add_json_schema(NetworkBuilder& network, const Value& schema, bool lenient);

}  // namespace weft::grammar
