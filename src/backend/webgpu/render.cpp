#include "backend/webgpu/render.hpp"

#include "backend/webgpu/wgsl_attention.hpp"
#include "backend/webgpu/wgsl_loop.hpp"
#include "backend/webgpu/wgsl_matmul.hpp"
#include "backend/webgpu/wgsl_scatter.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {

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
