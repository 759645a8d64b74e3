#include "backend/webgpu/wgsl/ctc.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "backend/webgpu/wgsl/routine_shader.hpp"
#include "graph/ctc.hpp"

namespace weft::webgpu {
namespace {

using kernel::CallKernel;
using kernel::Operand;

constexpr int kCtcThreadsMax = 256;
constexpr int kLinkThreads = 64;
constexpr Extent kFirstOfClass = Extent{1} << 31;  // in a link: no place before it has its class

/// The extents of both calls, and the statements that they share. `n` is the sequence.
class CtcShader : public RoutineShader {
 public:
  CtcShader(const CallKernel& kernel, const Target& target)
      : RoutineShader(target, kernel.name),
        count(kernel.shapes[0][0]),
        sequences(kernel.shapes[0][1]),
        classes(kernel.shapes[0][2]),
        places(kernel.shapes[1][1]),
        in_workgroup(places * 8 <= static_cast<Extent>(target.limits.workgroup_bytes)),
        kernel_(kernel) {
    const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(std::min<Extent>(places, kCtcThreadsMax)));
    pieces.threads = std::max(static_cast<int>(wanted), kLinkThreads);
  }

  void read_operands() {
    x = read(kernel_.reads[0]);
    at_ = read(kernel_.reads[1]);
    skips = read(kernel_.reads[2]);
    steps = read(kernel_.reads[3]);
    labels = read(kernel_.reads[4]);
  }

  static std::string never() { return fmt::format("{:e}f", graph::kNeverLog); }
  std::string row(const std::string& t) const { return fmt::format("(({}) * {}u + n) * {}u", t, sequences, places); }

  /// Functions that the body calls.
  void declare_functions() {
    const std::string_view log = pieces.helpers.use("log_f32"), exp = pieces.helpers.use("exp_f32");
    pieces.functions.push_back(
        {"log_sum", fmt::format("(a: f32, b: f32, c: f32) -> f32 {{\n"
                                "  let top = max(a, max(b, c));\n"
                                "  return {0}({1}(a - top) + {1}(b - top) + {1}(c - top)) + top;\n}}\n",
                                log, exp)});
    pieces.functions.push_back(
        {"class_at", fmt::format("(t: u32, n: u32, p: u32) -> f32 {{\n"
                                 "  let k = {};\n"
                                 "  if (k < 0 || k >= {}) {{ return 0f; }}\n"
                                 "  return {};\n}}\n",
                                 at(at_, fmt::format("n * {}u + p", places)), classes,
                                 at(x, fmt::format("(t * {}u + n) * {}u + u32(k)", sequences, classes)))});
    pieces.functions.push_back(
        {"may_skip", fmt::format("(n: u32, p: u32) -> bool {{\n  return p >= 2u && {} != 0;\n}}\n",
                                 at(skips, fmt::format("n * {}u + p", places)))});
  }

  /// Declares `total`, the log-probability of all alignments, from what has reached the last places.
  template <class Reached>
  void declare_total(const Reached& reached) {
    line(fmt::format("let label_count = {};", at(labels, "n")));
    for (const int before : {0, 1}) {
      line(fmt::format("var ended{} = {};", before,
                       before == 0 ? "0f" : "select(0f, " + never() + ", label_count <= 0)"));
      line(fmt::format("let place{0} = 2 * label_count - {0};", before));
      line(fmt::format("if (place{0} >= 0 && place{0} < {1}) {{ ended{0} = {2}; }}", before, places,
                       reached(fmt::format("u32(place{})", before))));
    }
    line(fmt::format("let total = $log_sum(ended0, ended1, {});", never()));
  }
  /// Of the operand [T, N, P] that is written, the last two steps are in a workgroup array too, if that has room: here it is declared,
  /// read at a place, and both are written at place `p`.
  void share_steps(std::string array) {
    if (in_workgroup) pieces.share(std::move(array), "f32", 2 * places);
  }
  std::string of_step(const std::string& array, int written, const std::string& t, const std::string& p) const {
    return in_workgroup ? fmt::format("${}[(({}) & 1u) * {}u + {}]", array, t, places, p)
                        : at(written, row(t) + " + " + p);
  }
  std::string keep(const std::string& array, int written, const std::string& t, const std::string& value) const {
    const std::string in_array =
        in_workgroup ? fmt::format("    {} = {};\n", of_step(array, written, t, "p"), value) : "";
    return in_array + "    " + put(written, row(t) + " + p", value) + "\n";
  }
  void each_place(const std::string& body) {
    line(fmt::format("for (var p = thread; p < {}u; p += {}u) {{", places, pieces.threads));
    pieces.body += body;
    line("}");
  }
  void barrier() { line(in_workgroup ? "workgroupBarrier();" : "storageBarrier(); workgroupBarrier();"); }

  const Extent count, sequences, classes, places;
  const bool in_workgroup;  // workgroup memory has room for two steps
  int x = -1, at_ = -1, skips = -1, steps = -1, labels = -1;

 private:
  const CallKernel& kernel_;
};

/// Links of each place, u32 [N, P]: the next place of its class, or P.
RenderedDispatch links_of(const CallKernel& kernel, const Operand& links, const Target& target) {
  const Extent sequences = kernel.shapes[1][0], places = kernel.shapes[1][1];
  RoutineShader s(target, kernel.name);
  s.pieces.threads = kLinkThreads;
  const int at = s.read(kernel.reads[1]), to = s.write(links);
  s.resolve();
  s.line(fmt::format("let i = group * {}u + thread;", kLinkThreads));
  s.line(fmt::format("if (i < {}u) {{", sequences * places));
  s.line(fmt::format("  let first = {} * {}u;", divided("i", places), places));
  s.line("  let own = " + s.at(at, "i") + ";");
  s.line(fmt::format("  var next = {}u;", places));
  s.line(fmt::format("  var first_of_class = {}u;", kFirstOfClass));
  s.line(fmt::format("  for (var p = 0u; p < {}u && next == {}u; p++) {{", places, places));
  s.line(fmt::format("    if ({} == own) {{", s.at(at, "first + p")));
  s.line("      if (first + p < i) { first_of_class = 0u; }");
  s.line("      if (first + p > i) { next = p; }");
  s.line("    }");
  s.line("  }");
  s.line("  " + s.put(to, "i", "next | first_of_class"));
  s.line("}");
  return s.dispatch(kernel.name + ".links", divide_up(sequences * places, kLinkThreads));
}

/// What flows through each place in each step, [T, N, P]; in steps that a sequence does not have, what flows through its last one.
RenderedDispatch flows_of(const CallKernel& kernel, const Operand& flows, const Target& target) {
  CtcShader s(kernel, target);
  s.read_operands();
  const int reached = s.read(kernel.reads[5]), gradient = s.read(kernel.reads[6]), to = s.write(flows);
  s.resolve();
  s.declare_functions();
  s.share_steps("flow_of_step");
  const std::string_view exp = s.pieces.helpers.use("exp_f32");
  const auto flow_at = [&](const std::string& t, const std::string& p) { return s.of_step("flow_of_step", to, t, p); };
  const auto keep = [&](const std::string& t) { return s.keep("flow_of_step", to, t, "flow"); };
  s.line("let n = group;");
  s.line("let step_count = " + s.at(s.steps, "n") + ";");
  s.declare_total(
      [&](const std::string& p) { return s.at(reached, s.row(fmt::format("{}u", s.count - 1)) + " + " + p); });
  s.line(fmt::format("let seed = {};", s.at(gradient, "n")));
  const std::string last = fmt::format("{}u", s.count - 1);
  s.each_place(fmt::format("    var flow = 0f;\n"
                           "    if (i32(p) == place0 || i32(p) == place1) {{ flow = seed * {}({} - total); }}\n",
                           exp, s.at(reached, s.row(last) + " + p")) +
               keep(last));
  s.line(fmt::format("for (var t = {}; t > 0u; t--) {{", last));
  s.barrier();
  std::string from;
  for (int by = 0; by < 3; ++by) {
    const std::string q = fmt::format("(p + {}u)", by);
    from += fmt::format(
        "      if ({0} < {1}u{2}) {{\n"
        "        let flowing = {3};\n"
        "        if (flowing != 0f) {{ flow += flowing * {4}(before - ({5} - $class_at(t, n, {0}))); }}\n"
        "      }}\n",
        q, s.places, by == 2 ? fmt::format(" && $may_skip(n, {})", q) : "", flow_at("t", q), exp,
        s.at(reached, s.row("t") + " + " + q));
  }
  s.each_place(fmt::format("    var flow = 0f;\n"
                           "    if (i32(t) >= step_count) {{\n"
                           "      flow = {};\n"
                           "    }} else {{\n"
                           "      let before = {};\n{}    }}\n",
                           flow_at("t", "p"), s.at(reached, s.row("t - 1u") + " + p"), from) +
               keep("(t - 1u)"));
  s.line("}");
  return s.dispatch(kernel.name + ".flows", s.sequences);
}

/// The gradient: for each step and sequence, the flows added up by class; 0 in steps that the sequence does not have.
RenderedDispatch sums_of(const CallKernel& kernel, const Operand& links, const Operand& flows, const Target& target) {
  const Extent count = kernel.shapes[0][0], sequences = kernel.shapes[0][1], classes = kernel.shapes[0][2],
               places = kernel.shapes[1][1];
  RoutineShader s(target, kernel.name);
  s.pieces.threads = kLinkThreads;
  const int at = s.read(kernel.reads[1]), steps = s.read(kernel.reads[3]), next = s.read(links), flow = s.read(flows),
            to = s.write(kernel.out());
  s.resolve();
  s.line(fmt::format("let n = {};", modulo("group", sequences)));
  s.line(fmt::format("let t = {};", divided("group", sequences)));
  s.line(fmt::format("for (var k = thread; k < {}u; k += {}u) {{ {} }}", classes, kLinkThreads,
                     s.put(to, fmt::format("group * {}u + k", classes), "0f")));
  s.line("storageBarrier();");
  s.line("workgroupBarrier();");
  s.line(fmt::format("if (t == 0u || i32(t) < {}) {{", s.at(steps, "n")));
  s.line(fmt::format("  for (var p = thread; p < {}u; p += {}u) {{", places, kLinkThreads));
  s.line(fmt::format("    var link = {};", s.at(next, fmt::format("n * {}u + p", places))));
  s.line(fmt::format("    let k = {};", s.at(at, fmt::format("n * {}u + p", places))));
  s.line(fmt::format("    if (link >= {}u && k >= 0 && k < {}) {{", kFirstOfClass, classes));
  s.line(fmt::format("      var sum = {};", s.at(flow, fmt::format("group * {}u + p", places))));
  s.line(fmt::format("      for (link &= {}u; link < {}u;) {{", kFirstOfClass - 1, places));
  s.line(fmt::format("        sum += {};", s.at(flow, fmt::format("group * {}u + link", places))));
  s.line(fmt::format("        link = {} & {}u;", s.at(next, fmt::format("n * {}u + link", places)), kFirstOfClass - 1));
  s.line("      }");
  s.line("      " + s.put(to, fmt::format("group * {}u + u32(k)", classes), "sum"));
  s.line("    }");
  s.line("  }");
  s.line("}");
  return s.dispatch(kernel.name + ".sums", count * sequences);
}

}  // namespace

bool accepts_ctc_alignment(const graph::Call& call) {
  const Tensor &x = call.input(0), &at = call.input(1);
  return x.dtype() == DType::f32 && x.numel() <= UINT32_MAX && at.dim(1) > 0 &&
         x.dim(0) <= UINT32_MAX / std::max<Extent>(at.numel(), 1);
}

void render_ctc_alignment(const CallKernel& kernel, const Target& target, Scratch&, Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  CtcShader s(kernel, target);
  s.read_operands();
  const int totals = s.write(kernel.outs[0]), all = s.write(kernel.outs[1]);
  s.resolve();
  s.declare_functions();
  s.share_steps("reached_of_step");
  const auto reached = [&](const std::string& t, const std::string& p) {
    return s.of_step("reached_of_step", all, t, p);
  };
  const auto keep = [&](const std::string& t) { return s.keep("reached_of_step", all, t, "next"); };
  s.line("let n = group;");
  s.line("let step_count = " + s.at(s.steps, "n") + ";");
  s.each_place(fmt::format("    var next = {};\n"
                           "    if (p < 2u && i32(p) <= 2 * {}) {{ next = $class_at(0u, n, p); }}\n",
                           s.never(), s.at(s.labels, "n")) +
               keep("0u"));
  s.line(fmt::format("for (var t = 1u; t < {}u; t++) {{", s.count));
  s.barrier();
  s.each_place(fmt::format("    var next = {0};\n"
                           "    if (i32(t) < step_count) {{\n"
                           "      var one = {1};\n      var two = {1};\n"
                           "      if (p >= 1u) {{ one = {2}; }}\n"
                           "      if ($may_skip(n, p)) {{ two = {3}; }}\n"
                           "      next = $log_sum(next, one, two) + $class_at(t, n, p);\n    }}\n",
                           reached("t - 1u", "p"), s.never(), reached("t - 1u", "(p - 1u)"),
                           reached("t - 1u", "(p - 2u)")) +
               keep("t"));
  s.line("}");
  s.barrier();
  s.line("if (thread == 0u) {");
  s.declare_total([&](const std::string& p) { return reached(fmt::format("{}u", s.count - 1), p); });
  s.line("  " + s.put(totals, "n", "total"));
  s.line("}");
  rendered.dispatches.push_back(s.dispatch(kernel.name, s.sequences));
}

void render_ctc_alignment_backward(const CallKernel& kernel, const Target& target, Scratch& scratch,
                                   Rendered& rendered) {
  if (kernel.shape().numel() == 0) return;
  const Extent places = kernel.shapes[1].numel();
  const Operand links = scratch.add(DType::u32, places), flows = scratch.add(DType::f32, kernel.shapes[0][0] * places);
  rendered.dispatches.push_back(links_of(kernel, links, target));
  rendered.dispatches.push_back(flows_of(kernel, flows, target));
  rendered.dispatches.push_back(sums_of(kernel, links, flows, target));
}

}  // namespace weft::webgpu
