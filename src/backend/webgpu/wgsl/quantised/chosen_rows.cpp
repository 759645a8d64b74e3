#include "backend/webgpu/wgsl/quantised/chosen_rows.hpp"

#include <fmt/format.h>

#include <utility>

namespace weft::webgpu {
using kernel::Operand;
using kernel::PackedMatmulKernel;

namespace {

constexpr int kOrderThreads = 256;

}  // namespace

ShaderPieces::Function is_chosen_function(const PackedMatmulKernel& kernel, int chosen, const Bindings& bindings) {
  const std::string at =
      fmt::format("min(i, {}u) * {}u + {}u", kernel.m - 1, kernel.chosen_stride, bindings.base(chosen));
  return {"is_chosen",
          fmt::format("(i: u32) -> bool {{ return (bitcast<u32>({}) << 1u) != 0u; }}\n", bindings.load(chosen, at))};
}

RenderedDispatch order_rows(const PackedMatmulKernel& kernel, const Operand& order, const Target& target) {
  Bindings bindings(target, kernel.name);
  const int chosen = bindings.add(*kernel.chosen, false), to = bindings.add(order, true);
  bindings.resolve();
  const auto put = [&](const std::string& at, const std::string& value) {
    return bindings.store(to, fmt::format("{} + {}u", at, bindings.base(to)), value);
  };
  std::string body;
  const auto line = [&](const std::string& text) { body += "  " + text + "\n"; };
  const Extent each = divide_up(kernel.m, kOrderThreads);
  line(fmt::format("let begin = thread * {}u;", each));
  line(fmt::format("let end = min(begin + {}u, {}u);", each, kernel.m));
  line("var mine = 0u;");
  line("for (var i = begin; i < end; i++) { mine += u32($is_chosen(i)); }");
  line("$chosen_until[thread] = mine;");
  line("workgroupBarrier();");
  line(fmt::format("for (var distance = 1u; distance < {}u; distance <<= 1u) {{", kOrderThreads));
  line("  var sum = $chosen_until[thread];");
  line("  if (thread >= distance) { sum += $chosen_until[thread - distance]; }");
  line("  workgroupBarrier();");
  line("  $chosen_until[thread] = sum;");
  line("  workgroupBarrier();");
  line("}");
  line("var next = $chosen_until[thread] - mine;");
  line("for (var i = begin; i < end; i++) {");
  line(fmt::format("  if ($is_chosen(i)) {{ {} next++; }}", put("next", "i")));
  line(fmt::format("  else {{ {} }}", put(fmt::format("({}u + next - i)", kernel.m - 1), "i")));
  line("}");
  line(fmt::format("if (thread == {}u) {{ {} }}", kOrderThreads - 1,
                   put(fmt::format("{}u", kernel.m), fmt::format("$chosen_until[{}]", kOrderThreads - 1))));
  ShaderPieces shader{.threads = kOrderThreads, .body = std::move(body)};
  shader.share("chosen_until", "u32", kOrderThreads);
  shader.functions.push_back(is_chosen_function(kernel, chosen, bindings));
  return dispatch_of(kernel.name + ".order", std::move(shader), bindings, 1, target);
}

}  // namespace weft::webgpu
