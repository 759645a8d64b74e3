// Evaluation: finds or makes the plan for requested values, by the structure of the graph, and runs it.
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
  std::shared_ptr<DeviceEntry> device;  // freed after the program
  compiler::Compiled compiled;          // without kernels if plans are not kept
  std::vector<Work> work;               // of each kernel
  std::unique_ptr<backend::Program> program;
  std::vector<std::size_t> output_bytes;
};
/// Compiles in the current table of nodes; see graph::PrivateGraph.
std::shared_ptr<Executable> make_executable(const compiler::Request& request, Device device);

/// While this object exists, programs that its thread compiles do not keep their plans, which only `explain` needs and which
/// take as much memory as the programs.
class WithoutPlans {
 public:
  WithoutPlans();
  ~WithoutPlans();
  WithoutPlans(const WithoutPlans&) = delete;
};

/// Computes the nodes (storage is set on them, but not on constants) and commits every pending Variable of their devices, or of
/// the given device; without nodes and device, of all devices.
/// Errors  UsageError: while a function is being traced on this thread, whose arguments have no elements yet.
void evaluate(std::span<const graph::NodeRef> nodes, std::optional<Device> device = {});
/// Computes only the nodes. All are on one device and not yet computed.
void compute(std::span<const graph::NodeRef> nodes, Device device);

/// Number of plans compiled by `evaluate` so far in this session, for tests.
std::size_t compiled_plan_count();

std::string explain(const Executable& executable, bool source);

}  // namespace weft::runtime
