// How many objects of a class that stands for a mode, such as NoGrad, exist on this thread.
#pragma once

namespace weft {

/// The constructor of `Scope` adds one, and its destructor takes one away.
template <class Scope>
int& scope_depth() {
  thread_local int depth = 0;
  return depth;
}

}  // namespace weft
