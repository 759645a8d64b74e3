#include "cli/op_json.hpp"

#include "catalogue/op_values.hpp"

namespace weft::cli {

graph::CaseAttributes attributes_from(const graph::OpRow& row, const Json& object) {
  return operations::attributes_from(row, Value::parse(object.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

nlohmann::ordered_json to_json(const graph::AttributeValue& value) {
  return nlohmann::ordered_json::parse(operations::value_of(value).to_json());
}

}  // namespace weft::cli
