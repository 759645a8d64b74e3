// Operations: functions that can be called by name, described as data, checked, and run in process or for remote clients.
//
//   auto registry = std::make_shared<operations::Registry>();
//   registry->add({.space = "text", .name = "length", .input = Value::parse(R"({"type": "string"})")},
//                 [](operations::Context& call) { return Value(call.input().string().size()); });
//   operations::Exchange exchange(registry);
//   exchange.call("text.length", "four").data;  // 4
#pragma once

#include "weft/operations/envelope.hpp"
#include "weft/operations/exchange.hpp"
#include "weft/operations/registry.hpp"
#include "weft/operations/schema_import.hpp"
#include "weft/operations/specification.hpp"
