// What ops do to their inputs inside an Autocast scope.
#pragma once

#include "graph/op.hpp"
#include "weft/autocast.hpp"

namespace weft::graph {

/// The type of this thread's scope; f32: none.
DType& autocast_state();
inline bool autocast_is_on() { return autocast_state() != DType::f32; }

/// While one lives, this thread has no scope: the parts of ops, gradients and updates of optimisers know their types.
class NoAutocast {
 public:
  NoAutocast() : before_(autocast_state()) { autocast_state() = DType::f32; }
  ~NoAutocast() { autocast_state() = before_; }
  NoAutocast(const NoAutocast&) = delete;

 private:
  DType before_;
};

/// The rule of an op by its name, or else of its family.
AutocastRule autocast_rule_of(std::string_view op, std::string_view family);

/// The input of an op with this rule, cast as the scope asks.
NodeRef autocast_input(AutocastRule rule, const NodeRef& x);
/// Casts the inputs of a call as the scope asks; gives the type that f32 results are cast to, which is f32 for most.
DType autocast_inputs(const OpRow& row, Tensors& inputs);

}  // namespace weft::graph
