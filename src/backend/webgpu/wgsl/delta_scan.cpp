#include "backend/webgpu/wgsl/delta_scan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backend/webgpu/wgsl/state_writer.hpp"
#include "compile/call_attributes.hpp"
#include "graph/delta_scan.hpp"

namespace weft::webgpu {
namespace {

using kernel::CallKernel;

constexpr Extent kDeltaThreads = 64;  // of a workgroup
constexpr Extent kKeysEach = 32;      // of a thread, in registers
constexpr Extent kKeysMax = 256;      // of a head
constexpr Extent kDeltaStretch = 8;   // steps whose q and k are in workgroup memory

/// A workgroup has some columns of a head's states for all steps. A thread has some keys of a column; the threads of a column add up
/// what they know of v once a step, and y once a stretch of steps.
class DeltaScanWriter : SequenceScanWriter {
 public:
  DeltaScanWriter(const CallKernel& kernel, const Target& target, bool cached)
      : SequenceScanWriter(kernel, target, cached),
        batch_(kernel.shapes[0][0]),
        steps_(kernel.shapes[0][1]),
        groups_(kernel.shapes[0][2]),
        keys_(kernel.shapes[0][3]),
        heads_(kernel.shapes[2][2]),
        width_(kernel.shapes[2][3]),
        each_(std::min(keys_, kKeysEach)),
        parts_(divide_up(keys_, each_)),
        columns_(std::min(kDeltaThreads / parts_, width_)),
        padded_(parts_ * each_),
        stretch_(std::min(steps_, kDeltaStretch)) {}

  RenderedDispatch write() {
    bind_scan();
    shader_.threads = static_cast<int>(kDeltaThreads);
    shader_.share("q_of_steps", "f32", stretch_ * padded_);
    shader_.share("k_of_steps", "f32", stretch_ * padded_);
    shader_.share("parts_known", "f32", 2 * kDeltaThreads);
    shader_.share("parts", "f32", stretch_ * kDeltaThreads);
    body();
    shader_.body = std::move(text_);
    return dispatch_of(kernel_.name, std::move(shader_), bindings_,
                       static_cast<std::uint64_t>(batch_ * heads_ * blocks()), target_);
  }

 private:
  Extent blocks() const { return divide_up(width_, columns_); }

  void body() {
    line(fmt::format("let block = {};", modulo("group", blocks())));
    line(fmt::format("let of_heads = {};", divided("group", blocks())));
    line(fmt::format("let head = {};", modulo("of_heads", heads_)));
    line(fmt::format("let s = {};", divided("of_heads", heads_)));
    line(fmt::format("let shared_by = {};", divided("head", heads_ / groups_)));
    line(fmt::format("let place = {};", modulo("thread", columns_)));
    line(fmt::format("let part = {};", divided("thread", columns_)));
    line(fmt::format("let is_there = part < {}u && block * {}u + place < {}u;", parts_, columns_, width_));
    line(fmt::format("let column = min(block * {}u + place, {}u);", columns_, width_ - 1));
    declare_row(kScanState);
    line(fmt::format("let states = (slot * {}u + head) * {}u + column;", heads_, keys_ * width_));
    line(fmt::format("var state: array<f32, {}>;", each_));
    each_key(fmt::format("if (has_state) {{ state[i] = {}; }}", load(state_, at_key())));
    line(fmt::format("for (var first = 0u; first < {}u; first += {}u) {{", steps_, stretch_));
    stage({steps_, groups_, keys_, padded_, stretch_, kDeltaThreads},
          {{"q_of_steps", reads_[0]}, {"k_of_steps", reads_[1]}});
    line("  workgroupBarrier();");
    line(fmt::format("  let count = min({}u, {}u - first);", stretch_, steps_));
    line("  for (var t = 0u; t < count; t++) {");
    step();
    line("  }");
    line("  workgroupBarrier();");
    add_parts();
    line("}");
    line("if (is_there && has_row) {");
    each_key(store(after_, at_key(), "state[i]"));
    line("}");
  }
  std::string at_key() const { return fmt::format("states + n * {}u", width_); }
  void each_key(const std::string& statement) {
    line(fmt::format("for (var i = 0u; i < {}u; i++) {{", each_));
    line(fmt::format("  let n = part * {}u + i;", each_));
    line(fmt::format("  if (n < {}u) {{ {} }}", keys_, statement));
    line("}");
  }

  void step() {
    const std::string_view exp = shader_.helpers.use("exp_f32");
    line(fmt::format("    let row_of_head = (s * {}u + first + t) * {}u + head;", steps_, heads_));
    line(fmt::format("    let keeps = {}({});", exp, load(reads_[3], "row_of_head")));
    line(fmt::format("    let at = t * {}u + min(part, {}u) * {}u;", padded_, parts_ - 1, each_));
    line("    var known = 0f;");
    line(fmt::format("    for (var i = 0u; i < {}u; i++) {{", each_));
    line("      state[i] *= keeps;");
    line("      known += state[i] * $k_of_steps[at + i];");
    line("    }");
    if (parts_ > 1) {
      line(fmt::format("    let row = (t & 1u) * {}u;", kDeltaThreads));
      line("    $parts_known[row + thread] = known;");
      line("    workgroupBarrier();");
      line("    known = 0f;");
      line(fmt::format("    for (var p = 0u; p < {}u; p++) {{ known += $parts_known[row + p * {}u + place]; }}", parts_,
                       columns_));
    }
    line(fmt::format("    let added = {} * ({} - known);", load(reads_[4], "row_of_head"),
                     load(reads_[2], fmt::format("row_of_head * {}u + column", width_))));
    line("    var y = 0f;");
    line(fmt::format("    for (var i = 0u; i < {}u; i++) {{", each_));
    line("      let next = state[i] + added * $k_of_steps[at + i];");
    line("      y += next * $q_of_steps[at + i];");
    line("      state[i] = next;");
    line("    }");
    line(fmt::format("    $parts[t * {}u + thread] = y;", kDeltaThreads));
  }

  void add_parts() {
    line(fmt::format("  for (var i = thread; i < count * {}u; i += {}u) {{", columns_, kDeltaThreads));
    line(fmt::format("    let t = {};", divided("i", columns_)));
    line(fmt::format("    let of_block = {};", modulo("i", columns_)));
    line(fmt::format("    let to = block * {}u + of_block;", columns_));
    line("    var y = 0f;");
    line(fmt::format("    for (var p = 0u; p < {}u; p++) {{ y += $parts[t * {}u + p * {}u + of_block]; }}", parts_,
                     kDeltaThreads, columns_));
    line(fmt::format(
        "    if (to < {}u) {{ {} }}", width_,
        store(y_, fmt::format("((s * {}u + first + t) * {}u + head) * {}u + to", steps_, heads_, width_), "y")));
    line("  }");
  }

  const Extent batch_, steps_, groups_, keys_, heads_, width_;
  const Extent each_, parts_, columns_;  // keys of a thread, threads of a column, columns of a workgroup
  const Extent padded_, stretch_;
  ShaderPieces shader_;
};

}  // namespace

bool accepts_delta_scan(const graph::Call& call) {
  return call.input(0).dtype() == DType::f32 && call.input(0).dim(3) <= kKeysMax;
}

void render_delta_scan(const CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  const bool cached = kernel::attributes_of<graph::DeltaScanAttributes>(kernel).cached;
  if (cached) copy_cache(kernel, kScanState, target, scratch, rendered);
  if (kernel.shapes[0].numel() == 0 || kernel.shapes[2].numel() == 0) return;
  rendered.dispatches.push_back(DeltaScanWriter(kernel, target, cached).write());
}

}  // namespace weft::webgpu
