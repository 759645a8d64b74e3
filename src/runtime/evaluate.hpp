// Evaluation: from asked-for values to a plan, kept by the structure of the graph, and its run.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/contract.hpp"
#include "compile/compile.hpp"
#include "graph/node.hpp"
#include "runtime/runtime_state.hpp"

namespace weft::runtime {

/// A plan compiled for one device.
struct Executable {
  struct Work {
    double flops = 0, bytes = 0;
  };
  std::shared_ptr<DeviceEntry> device;  // goes after the program
  compiler::Compiled compiled;          // without kernels where plans are not kept
  std::vector<Work> work;               // of each kernel
  std::unique_ptr<backend::Program> program;
  std::vector<std::size_t> output_bytes;
};
/// Compiles in the current table of nodes; see graph::PrivateGraph.
std::shared_ptr<Executable> make_executable(const compiler::Request& request, Device device);

/// While one lives on a thread, programs that are compiled there do not keep their plans, which only `explain` needs and
/// which take as much memory again.
class WithoutPlans {
 public:
  WithoutPlans();
  ~WithoutPlans();
  WithoutPlans(const WithoutPlans&) = delete;
};

/// Computes the nodes (storage is set on them, but not on constants) and commits every pending Variable of their devices,
/// or of the one given; without nodes and device, of all.
/// Errors  UsageError: while a function is being traced on this thread, whose arguments have no elements yet.
void evaluate(std::span<const graph::NodeRef> nodes, std::optional<Device> device = {});
/// Computes the nodes and nothing else. All are on one device and not yet computed.
void compute(std::span<const graph::NodeRef> nodes, Device device);

/// Number of plans compiled by `evaluate` so far in this session, for tests.
std::size_t compiled_plan_count();

std::string explain(const Executable& executable, bool source);

}  // namespace weft::runtime
