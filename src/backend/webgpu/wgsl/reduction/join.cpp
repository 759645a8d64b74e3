// Joining the partial results of the threads that share a row.
#include "backend/webgpu/wgsl/reduction/writer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::webgpu {
using kernel::Level;
using kernel::LoopKernel;
using kernel::Step;
using kernel::StepKind;
using scalar::Reduction;

namespace {

constexpr int kSharedWordsMax = 2048;  // workgroup memory for joining lanes
constexpr const char* kPartNames[] = {"", "p", "n"};

}  // namespace

std::string ReductionWriter::from_word(DType type, const std::string& word) {
  return type == DType::u32       ? word
         : type == DType::boolean ? "(" + word + " != 0u)"
                                  : fmt::format("bitcast<{}>({})", wgsl_type(type), word);
}

std::string ReductionWriter::combine_statement(int s, int lane, const std::string& other, Helpers& helpers) const {
  if (joint(s) != Joint::none) return combine_joint(s, lane, other, helpers);
  const Step& step = kernel_.steps[static_cast<std::size_t>(s)];
  const std::string own = accumulator(s, lane, 0);
  if (!gives_position(step.reduction))
    return fmt::format(
        "{} = {};", own,
        render_combine(step.reduction, kernel_.steps[static_cast<std::size_t>(step.a)].type, own, other, helpers));
  return fmt::format("if ({0} > {1} || ({0} == {1} && {0}p < {2})) {{ {1} = {0}; {2} = {0}p; }}", other, own,
                     accumulator(s, lane, 1));
}

// Joins the partial results of the lanes of each row, so that every lane has the row's results, and names these.
void ReductionWriter::join(const std::vector<int>& steps, StepWriter& writer, Helpers& helpers) {
  int joined = 1;  // neighbouring lanes that have the same result
  // Lanes of a row are neighbours; in columns they are as far apart as a workgroup has rows.
  const int apart = layout_.columns ? layout_.rows_per_group() : 1, subgroup = static_cast<int>(target_.subgroup_size);
  if (layout_.lanes > 1 && 2 * apart <= subgroup) {
    uses_subgroups_ = true;
    for (; joined < std::min(layout_.lanes, subgroup / apart); joined *= 2)
      for (int s : steps)
        for (int lane = 0; lane < accumulators(); ++lane) {
          const std::string name = fmt::format("o{}{}d{}", s, "xyzw"[lane], joined);
          for (int part = 0; part < components(s); ++part) {
            const DType type = type_of(s, part);
            const std::string word = to_word(type, accumulator(s, lane, part));
            writer.line(fmt::format("let {}{} = {};", name, kPartNames[part],
                                    from_word(type, fmt::format("subgroupShuffleXor({}, {}u)", word, joined * apart))));
          }
          writer.line(combine_statement(s, lane, name, helpers));
        }
  }
  if (joined < layout_.lanes) {
    // As many at a time as workgroup memory holds.
    for (std::size_t from = 0, to = 0; from < steps.size(); from = to) {
      int words = 0;
      std::vector<int> some;
      for (; to < steps.size(); ++to) {
        const int more = layout_.threads / joined * accumulators() * components(steps[to]);
        if (!some.empty() && words + more > kSharedWordsMax) break;
        words += more;
        some.push_back(steps[to]);
      }
      shared_words_ = std::max(shared_words_, words);
      join_through_memory(some, joined, writer, helpers);
    }
  }
  for (int s : steps) {
    if (joint(s) != Joint::none && layout_.chunks == 1) {
      define_joint(s, writer, helpers);
      continue;
    }
    const bool arg = has_position(s);
    std::vector<std::string> lanes;
    for (int lane = 0; lane < accumulators(); ++lane)
      lanes.push_back(render_cast({accumulator(s, lane, arg ? 1 : 0), arg ? DType::i32 : type_of(s), {}},
                                  kernel_.steps[static_cast<std::size_t>(s)].type, helpers));
    writer.define(s, lanes);
  }
}

// Every lane adds up the row's partial results in the same order; if there are many, some lanes first add up a part.
void ReductionWriter::join_through_memory(const std::vector<int>& steps, int joined, StepWriter& writer,
                                          Helpers& helpers) {
  const int parts = layout_.lanes / joined;                           // of a row
  const int stride = layout_.columns ? layout_.rows_per_group() : 1;  // in memory, from part to part
  const int region = layout_.threads / joined;                        // words of one accumulator
  const auto each = [&](const auto& visit) {
    int base = 0;
    for (int s : steps)
      for (int lane = 0; lane < accumulators(); ++lane) {
        visit(s, lane, base);
        base += region * components(s);
      }
  };
  const auto put = [&](const std::string& at) {
    each([&](int s, int lane, int base) {
      for (int part = 0; part < components(s); ++part)
        writer.line(fmt::format("  $shared_words[{}u + {}] = {};", base + part * region, at,
                                to_word(type_of(s, part), accumulator(s, lane, part))));
    });
  };
  const auto take = [&](const std::string& at, int count, int step) {
    each([&](int s, int lane, int base) {
      const auto get = [&](int part, const std::string& from) {
        return from_word(type_of(s, part), fmt::format("$shared_words[{}u + {}]", base + part * region, from));
      };
      for (int part = 0; part < components(s); ++part)
        writer.line(fmt::format("  {} = {};", accumulator(s, lane, part), get(part, at)));
      // Thread numbers are below 2^16, but slow compilers do not know this, so they do not unroll the loop.
      writer.line(fmt::format("  for (var part = 1u; part < {}u{}; part++) {{", count,
                              target_.unroll ? "" : " + (thread >> 16u)"));
      const std::string from = fmt::format("{} + part * {}u", at, step);
      for (int part = 0; part < components(s); ++part)
        writer.line(fmt::format("    let other{} = {};", kPartNames[part], get(part, from)));
      writer.line("    " + combine_statement(s, lane, "other", helpers));
      writer.line("  }");
    });
  };
  const std::string own = layout_.columns && joined > 1
                              ? fmt::format("{} * {}u + {}", divided("lane", joined), stride, modulo("thread", stride))
                              : divided("thread", joined);
  const std::string is_first = fmt::format("{} == 0u", modulo("lane", joined));  // of the lanes with the same result
  const std::string row_start =
      layout_.columns ? modulo("thread", stride) : fmt::format("{} * {}u", divided("thread", layout_.lanes), parts);
  writer.line(joined > 1 ? fmt::format("if ({}) {{", is_first) : "{");
  put(own);
  writer.line("}");
  writer.line("workgroupBarrier();");
  int left = parts;
  if (parts > kSerialPartsMax) {
    left = kSerialPartsMax;
    const std::string part = joined == 1 ? "lane" : divided("lane", joined);
    writer.line(fmt::format("if ({} < {}u{}) {{", part, left, joined > 1 ? " && " + is_first : ""));
    take(own, parts / left, left * stride);
    put(own);
    writer.line("}");
    writer.line("workgroupBarrier();");
  }
  // Partial results of a chunk are stored by one lane.
  writer.line(layout_.chunks > 1 ? "if (lane == 0u) {" : "{");
  take(row_start, left, stride);
  writer.line("}");
  writer.line("workgroupBarrier();");  // before the words are used again
}

}  // namespace weft::webgpu
