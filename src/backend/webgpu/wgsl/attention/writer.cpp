// The whole shader, the rows of each thread, and the walk over tiles.
#include "backend/webgpu/wgsl/attention/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::webgpu::attention {
using kernel::AttentionKernel;

AttentionWriter::AttentionWriter(const AttentionKernel& kernel, Part part, const kernel::Operand& delta,
                                 const Target& target, Rendered& rendered, const AttentionBlock* forced, Extent parts)
    : kernel_(kernel),
      part_(part),
      delta_operand_(delta),
      target_(target),
      rendered_(rendered),
      forced_(forced),
      parts_(parts),
      bindings_(target, kernel.name),
      bounds_(bounds_of(kernel, owns_queries())),
      extras_(kernel, owns_queries(), bindings_, helpers_) {}

bool AttentionWriter::is_possible(const AttentionBlock& block) {
  measure();
  return fits(block);
}

void AttentionWriter::render() {
  owned_ = owns_queries() ? kernel_.queries : kernel_.keys;
  others_ = owns_queries() ? kernel_.keys : kernel_.queries;
  const Extent heads = owns_queries() ? kernel_.heads : kernel_.kv_heads;
  if (kernel_.batch * heads * owned_ == 0) return;
  measure();
  choose_block(heads);
  plan_phases();
  bind();
  const Extent blocks = divide_up(owned_, block_.rows());
  const auto groups = static_cast<std::uint64_t>(kernel_.batch * heads * blocks * parts_);
  write_place();
  write_owned();
  if (others_ > 0) write_tiles();
  write_results();

  ShaderPieces shader{.threads = block_.threads(), .subgroups = uses_subgroups_, .helpers = helpers_};
  for (int b = 0; b < block_.buffers; ++b) shader.share(fmt::format("slab{}", b), "vec4f", buffer_vectors(block_, b));
  if (needs_exchange()) shader.share("exchange", "vec4f", block_.threads());
  if (sums_delta()) shader.share("row_stats", "vec2f", block_.tile());
  shader.body = std::move(text_);
  const std::string suffix =
      (ranges_.exist() ? std::string(".wide") : std::string()) + (parts_ > 1               ? ".parts"
                                                                  : part_ == Part::forward ? ""
                                                                  : part_ == Part::d_query ? ".dq"
                                                                                           : ".dkv");
  RenderedDispatch dispatch = dispatch_of(kernel_.name + suffix, std::move(shader), bindings_, groups, target_);
  dispatch.beside_previous = part_ == Part::d_key_value && computes_delta_twice(kernel_);
  rendered_.dispatches.push_back(std::move(dispatch));
}

void AttentionWriter::measure() {
  vectors_ = static_cast<int>(divide_up(kernel_.width, 4 * kAcross)) * kAcross;
  slice_ = vectors_ % 16 == 0 ? 16 : 8;
}

void AttentionWriter::write_place() {
  // The numbers of neighbours across and down alternate in the lowest bits: four neighbours then read two vectors of
  // either operand, which workgroup memory serves in half the time. Subgroups of eight have to be one row across.
  interleaved_ = needs_exchange() || target_.subgroup_size > kAcross;
  line(fmt::format("let lane = {};", modulo("thread", kPatch)));
  line(interleaved_ ? "let across = (lane & 1u) | ((lane >> 1u) & 6u);" : "let across = lane & 7u;");
  line(interleaved_ ? "let down = ((lane >> 1u) & 1u) | ((lane >> 3u) & 2u);" : "let down = lane >> 3u;");
  line(fmt::format("let own = {} * {}u;", divided("thread", kPatch), kDown * block_.lane_rows));
  line("let own_down = own + down;");
  line("let turned0 = own_down & 7u;");
  line("let turned1 = turned0 ^ 4u;");
  add_lines(place_lines(kernel_, place()));
  if (ranges_.exist()) {
    add_lines(range_lines(kernel_, ranges_, bindings_, words_));
    line("if (fits_halves) { return; }");
  }
  line(fmt::format("let load_row = {};", divided("thread", slice_)));
  line(fmt::format("let load_vector = {};", modulo("thread", slice_)));
}

void AttentionWriter::write_owned() {
  for (int i = 0; i < block_.lane_rows; ++i) {
    for (int h = 0; h < columns(); ++h) {
      line(fmt::format("var result{}_{} = vec4f();", i, h));
      if (part_ == Part::d_key_value) line(fmt::format("var second{}_{} = vec4f();", i, h));
    }
    if (part_ == Part::forward) line(fmt::format("var top{0} = {1}; var total{0} = 0f;", i, kUnseen));
  }
  if (part_ == Part::d_query) write_query_stats();
  for (const Phase::Load& load : resident_) write_fill(load, 0);
  if (!block_.ahead) return;
  std::array<int, 2> most{};
  for (const Phase& phase : phases_)
    for (std::size_t l = 0; l < phase.loads.size(); ++l) most[l] = std::max(most[l], loads_of(phase.loads[l].matter));
  for (std::size_t l = 0; l < most.size(); ++l)
    for (int i = 0; i < most[l]; ++i) line(fmt::format("var next{}_{}: vec4f;", l, i));
}

// rowsum(dO * O) of the owned queries, and their logsumexp.
void AttentionWriter::write_query_stats() {
  std::vector<std::string> names;
  for (int i = 0; i < block_.lane_rows; ++i) {
    const std::string row = fmt::format("min({}, {}u)", row_of(i), kernel_.queries - 1);
    line(fmt::format("var delta{} = 0f;", i));
    line(fmt::format("for (var d = across; d < {}; d += {}u) {{", end_of(vectors_), kAcross));
    line(fmt::format("  delta{} += dot({}, {});", i, channels(d_o_, row, "d"), channels(o_, row, "d")));
    line("}");
    write_log_sum(fmt::format("log_sum{}", i), row);
    names.push_back(fmt::format("delta{}", i));
  }
  write_join(names, false);
  if (computes_delta_twice(kernel_)) return;
  for (int i = 0; i < block_.lane_rows; ++i)
    line(fmt::format("if (across == 0u && {} < {}u) {{ {} }}", row_of(i), kernel_.queries,
                     bindings_.store(delta_, stat_index(delta_, row_of(i)), fmt::format("delta{}", i))));
}

// In units of log 2. That of a query that sees no key is so large that its shares are 0: a key may lie between keys whose
// queries it does not see.
void AttentionWriter::write_log_sum(const std::string& name, const std::string& row) {
  line(
      fmt::format("var {} = {} * {};", name, bindings_.load(logsumexp_, stat_index(logsumexp_, row)), literal(kLog2E)));
  line(fmt::format("{0} = select({0}, {1}, {0} < {2});", name, kNoShares, kUnseen));
}

void AttentionWriter::write_tiles() {
  add_lines(extras_.tile_lines(place(), bounds_));
  if (extras_.drops()) add_lines(extras_.seed_lines());
  if (extras_.has_spans())
    for (int i = 0; i < block_.lane_rows; ++i) {
      const std::string row = fmt::format("min({}, {}u)", row_of(i), owned_ - 1);
      line(fmt::format("let span_first{0} = {1}; let span_end{0} = {2};", i, extras_.span(row, 0),
                       extras_.span(row, 1)));
    }
  const std::string turns = walks_members() ? fmt::format("tiles * {}u", members()) : "tiles";
  line(fmt::format("let turns = {};", turns));
  const auto load_turn = [&](const std::string& condition, const std::string& turn) {
    line(fmt::format("if ({}) {{", condition));
    deeper([&] {
      write_turn(turn);
      write_load(phases_[0]);
    });
    line("}");
  };
  if (block_.ahead) load_turn("turns > 0u", "0u");
  line("for (var turn = 0u; turn < turns; turn++) {");
  deeper([&] {
    write_turn("turn");
    for (std::size_t p = 0; p < phases_.size(); ++p) {
      const Phase& phase = phases_[p];
      if (phase.shares) write_shares(phase);
      if (p == 0 || phase.shares || !phase.loads.empty()) {
        if (!phase.shares) line("workgroupBarrier();");
        if (block_.ahead) {
          write_store(phase);
        } else {
          for (const Phase::Load& load : phase.loads) write_fill(load, phase.slice);
        }
        if (p == 0 && sums_delta()) write_row_stats();
        line("workgroupBarrier();");
      }
      if (block_.ahead) {
        if (p + 1 < phases_.size()) {
          write_load(phases_[p + 1]);
        } else {
          load_turn("turn + 1u < turns", "(turn + 1u)");
        }
      }
      switch (phase.product) {
        case Product::score: write_scores(phase, "score"); break;
        case Product::slope: write_scores(phase, "slope"); break;
        case Product::result: write_accumulate(phase, "result"); break;
        case Product::second: write_accumulate(phase, "second"); break;
      }
    }
  });
  line("}");
}

// The tile of turn `turn` and, if several heads share the owned keys, its head.
void AttentionWriter::write_turn(const std::string& turn) {
  if (walks_members()) {
    line(fmt::format("let head = kv_head * {}u + {} / tiles;", members(), turn));
    line(fmt::format("let other0 = (tile_begin + {} % tiles) * {}u;", turn, block_.tile()));
  } else {
    line(fmt::format("let other0 = (tile_begin + {}) * {}u;", turn, block_.tile()));
  }
}

}  // namespace weft::webgpu::attention
