// Workflows: templates of operations as data, checked before anything runs.
//
//   using namespace workflow;
//   const Template steps{.tree = sequential({operation("tensor.add", Value::object({{"x", "$.input.x"}, {"y", 1}})),
//                                            operation("tensor.exp", Value::object({{"x", "$.previous.result"}}))})};
//   check(steps, exchange.registry());  // problems with their paths; none here
//   const Value answer = run(exchange, steps, Value::object({{"x", x}}), {.call = {.identity = me}});
#pragma once

#include "weft/workflow/call_graph.hpp"
#include "weft/workflow/check.hpp"
#include "weft/workflow/render.hpp"
#include "weft/workflow/run.hpp"
#include "weft/workflow/template.hpp"
