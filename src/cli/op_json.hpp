// Attributes of ops as JSON.
#pragma once

#include "base/json.hpp"
#include "graph/op.hpp"

namespace weft::cli {

/// Attributes from an object {name: value}: numbers ("inf", "-inf" and "nan" too), booleans, lists of integers, lists of
/// pairs, names of dtypes, words, null for the default.
/// Errors: UsageError for what is not an object, or a value that no attribute takes.
graph::CaseAttributes attributes_from(const graph::OpRow& row, const Json& object);
/// "inf", "-inf" and "nan" stand for what JSON has no numbers for.
nlohmann::ordered_json to_json(const graph::AttributeValue& value);

}  // namespace weft::cli
