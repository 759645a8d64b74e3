#include "backend/webgpu/render.hpp"

#include "backend/webgpu/calls.hpp"
#include "backend/webgpu/wgsl/attention.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "backend/webgpu/wgsl/scatter.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

void render(const kernel::CallKernel& k, const Target& target, Scratch& scratch, Rendered& rendered) {
  const CallEntry* entry = calls().find(*k.op);
  if (!entry || !entry->render) throw InternalError("webgpu: there is no kernel for it");
  entry->render(k, target, scratch, rendered);
}

}  // namespace

Rendered render(const kernel::Kernel& kernel, int plan_buffers, const Target& target) {
  Rendered rendered;
  Scratch scratch(plan_buffers, rendered);
  std::visit(
      [&](const auto& k) {
        try {
          render(k, target, scratch, rendered);
        } catch (Error& error) {
          error.add_context("rendering the kernel " + k.name);
          throw;
        }
      },
      kernel);
  return rendered;
}

}  // namespace weft::webgpu
