// Tests that change the instruction set or the number of threads give both back at their end.
#pragma once

#include "backend/cpu/isa.hpp"
#include "base/threads.hpp"

namespace weft::cpu {

struct KeepSettings {
  Isa isa_before = isa();
  int threads_before = thread_count();
  ~KeepSettings() { set_isa(isa_before), set_thread_count(threads_before); }
};

}  // namespace weft::cpu
