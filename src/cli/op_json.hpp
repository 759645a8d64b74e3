// Attributes of ops as JSON.
#pragma once

#include "base/json.hpp"
#include "graph/op.hpp"

namespace weft::cli {

/// Attributes from an object {name: value}, as `operations::attributes_from`.
graph::CaseAttributes attributes_from(const graph::OpRow& row, const Json& object);
/// Writes infinities and NaN, which JSON lacks, as "inf", "-inf" and "nan".
nlohmann::ordered_json to_json(const graph::AttributeValue& value);

}  // namespace weft::cli
