// Evaluation: from asked-for values to a plan, kept by the structure of the graph, and its run.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/contract.hpp"
#include "compile/compile.hpp"
#include "graph/node.hpp"

namespace weft::runtime {

/// A plan compiled for one device.
struct Executable {
  struct Work {
    double flops = 0, bytes = 0;
  };
  compiler::Compiled compiled;  // without kernels where plans are not kept
  std::vector<Work> work;       // of each kernel
  std::unique_ptr<backend::Program> program;
  std::vector<std::size_t> output_bytes;
};
std::shared_ptr<Executable> make_executable(const compiler::Request& request, Device device);

/// While one lives on a thread, programs that are compiled there do not keep their plans, which only `explain` needs and
/// which take as much memory again.
class WithoutPlans {
 public:
  WithoutPlans();
  ~WithoutPlans();
  WithoutPlans(const WithoutPlans&) = delete;
};

/// Computes the nodes (storage is set on them, but not on constants) and commits every pending Variable of their devices.
void evaluate(std::span<const graph::NodeRef> nodes);

/// While one lives on a thread, a function is being traced there: its arguments have no elements yet, so values cannot be
/// asked for, and assignments to Variables wait for the plan.
class Tracing {
 public:
  Tracing();
  ~Tracing();
  Tracing(const Tracing&) = delete;
  static bool active();
};

/// Number of plans compiled by `evaluate` so far, for tests.
std::size_t compiled_plan_count();

std::string explain(const Executable& executable, bool source);

}  // namespace weft::runtime
