#include "backend/webgpu/wgsl/scan.hpp"

#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/call_attributes.hpp"
#include "graph/scan.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr int kThreads = 256;
constexpr int kEach = 4;  // neighbouring elements of a thread

class ScanWriter {
 public:
  ScanWriter(const kernel::CallKernel& kernel, const Target& target)
      : kernel_(kernel),
        target_(target),
        a_(kernel::attributes_of<graph::CumsumAttributes>(kernel)),
        bindings_(target, kernel.name) {
    const Shape& shape = kernel.shape();
    const auto axis = static_cast<int>(a_.axis < 0 ? a_.axis + shape.rank() : a_.axis);
    for (int d = 0; d < shape.rank(); ++d) (d < axis ? outer_ : d == axis ? n_ : inner_) *= shape[d];
    from_ = bindings_.add(kernel.reads[0], false);
    to_ = bindings_.add(kernel.out(), true);
    bindings_.forbid_vectors(to_);
    bindings_.resolve();
    type_ = kernel.out().type == DType::f32 ? "f32" : kernel.out().type == DType::u32 ? "u32" : "i32";
  }

  RenderedDispatch write() {
    const bool together = inner_ == 1 && n_ > kEach;
    const auto groups = static_cast<std::uint64_t>(together ? outer_ : divide_up(outer_ * inner_, kThreads));
    ShaderPieces shader{.threads = kThreads, .body = together ? by_workgroup() : by_thread()};
    if (together) shader.share("sums", type_, kThreads);
    return dispatch_of(kernel_.name, std::move(shader), bindings_, groups, target_);
  }

 private:
  // Place of element i (text) of the scan that begins at `start`, a stride of `stride` apart.
  std::string place(const std::string& start, const std::string& i) const {
    const std::string forward = a_.reverse ? fmt::format("({}u - {})", n_ - 1, i) : i;
    return fmt::format("{} + {} * {}u", start, forward, inner_);
  }
  std::string load(const std::string& at) const {
    const std::string value = bindings_.load(from_, fmt::format("{} + {}u", at, bindings_.base(from_)));
    return kernel_.reads[0].type == DType::boolean ? fmt::format("select(0i, 1i, {})", value) : value;
  }
  std::string store(const std::string& at, const std::string& value) const {
    return bindings_.store(to_, fmt::format("{} + {}u", at, bindings_.base(to_)), value);
  }

  std::string by_thread() const {
    std::string text;
    const auto line = [&](const std::string& statement) { text += "  " + statement + "\n"; };
    line(fmt::format("let number = group * {}u + thread;", kThreads));
    line(fmt::format("if (number < {}u) {{", outer_ * inner_));
    line(fmt::format("  let start = {} * {}u + {};", divided("number", inner_), n_ * inner_, modulo("number", inner_)));
    line(fmt::format("  var sum = {}();", type_));
    line(fmt::format("  for (var i = 0u; i < {}u; i++) {{", n_));
    line(fmt::format("    let at = {};", place("start", "i")));
    line(fmt::format("    let x = {};", load("at")));
    if (a_.exclusive) line("    " + store("at", "sum"));
    line("    sum += x;");
    if (!a_.exclusive) line("    " + store("at", "sum"));
    line("  }");
    line("}");
    return text;
  }

  std::string by_workgroup() const {
    std::string text;
    const auto line = [&](const std::string& statement) { text += "  " + statement + "\n"; };
    line(fmt::format("let start = group * {}u;", n_));
    line(fmt::format("var carried = {}();", type_));
    line(fmt::format("for (var stretch = 0u; stretch < {}u; stretch += {}u) {{", n_, kThreads * kEach));
    line(fmt::format("  let first = stretch + thread * {}u;", kEach));
    line(fmt::format("  var mine = {}();", type_));
    for (int e = 0; e < kEach; ++e) {
      line(fmt::format("  var x{} = {}();", e, type_));
      line(fmt::format("  if (first + {0}u < {1}u) {{ x{0} = {2}; }}", e, n_,
                       load(place("start", fmt::format("(first + {}u)", e)))));
      line(fmt::format("  mine += x{};", e));
    }
    line("  $sums[thread] = mine;");
    line("  workgroupBarrier();");
    for (int by = 1; by < kThreads; by *= 2) {
      line(fmt::format("  var below{0} = {1}();", by, type_));
      line(fmt::format("  if (thread >= {0}u) {{ below{0} = $sums[thread - {0}u]; }}", by));
      line("  workgroupBarrier();");
      line(fmt::format("  $sums[thread] += below{};", by));
      line("  workgroupBarrier();");
    }
    line("  var sum = carried;");
    line("  if (thread > 0u) { sum += $sums[thread - 1u]; }");
    for (int e = 0; e < kEach; ++e) {
      const std::string at = place("start", fmt::format("(first + {}u)", e));
      if (!a_.exclusive) line(fmt::format("  sum += x{};", e));
      line(fmt::format("  if (first + {}u < {}u) {{ {} }}", e, n_, store(at, "sum")));
      if (a_.exclusive) line(fmt::format("  sum += x{};", e));
    }
    line(fmt::format("  carried += $sums[{}u];", kThreads - 1));
    line("  workgroupBarrier();");
    line("}");
    return text;
  }

  const kernel::CallKernel& kernel_;
  const Target& target_;
  const graph::CumsumAttributes a_;
  Bindings bindings_;
  Extent outer_ = 1, n_ = 1, inner_ = 1;
  int from_ = 0, to_ = 0;
  std::string type_;
};

}  // namespace

void render_cumsum(const kernel::CallKernel& kernel, const Target& target, Scratch&, Rendered& rendered) {
  if (kernel.shape().numel() > 0) rendered.dispatches.push_back(ScanWriter(kernel, target).write());
}

}  // namespace weft::webgpu
