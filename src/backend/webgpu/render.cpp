#include "backend/webgpu/render.hpp"

#include "backend/webgpu/wgsl/attention.hpp"
#include "backend/webgpu/wgsl/cache.hpp"
#include "backend/webgpu/wgsl/cache_attention.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/matmul.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "backend/webgpu/wgsl/sample.hpp"
#include "backend/webgpu/wgsl/scatter.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

using RenderRoutine = void (*)(const kernel::RoutineKernel&, const Target&, Scratch&, Rendered&);
RenderRoutine renderer_of(ops::Routine routine) {
  switch (routine) {
    case ops::Routine::write_rows: return render_write_rows;
    case ops::Routine::cache_attention: return render_cache_attention;
    case ops::Routine::sample_token: return render_sample_token;
    case ops::Routine::unpack_rows:
      return [](const kernel::RoutineKernel& k, const Target& target, Scratch&, Rendered& rendered) {
        render_unpack_rows(k, target, rendered);
      };
  }
  return nullptr;
}

void render(const kernel::RoutineKernel& k, const Target& target, Scratch& scratch, Rendered& rendered) {
  renderer_of(k.routine)(k, target, scratch, rendered);
}

}  // namespace

bool has_routine(ops::Routine routine) { return renderer_of(routine) != nullptr; }

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
