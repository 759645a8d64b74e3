// The hooks of a Variable, for languages whose search for cycles must look into them.
#pragma once

#include "base/function_ref.hpp"
#include "weft/hooks.hpp"

namespace weft {

/// Shows the hooks of a Variable that nobody holds but the caller; else none, because somebody may still call them.
void visit_hooks_of_last(const Variable& variable, FunctionRef<void(const GradientHook&)> visit);
void remove_hooks(const Variable& variable);

}  // namespace weft
