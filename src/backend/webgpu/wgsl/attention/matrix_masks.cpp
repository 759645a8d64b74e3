// What is hidden or dropped: which tiles are walked over, which scores are hidden, which shares are kept.
#include "backend/webgpu/wgsl/attention/matrix_writer.hpp"

#include <fmt/format.h>

namespace weft::webgpu::attention {

// Tiles that hold something the mask shows.
void MatrixAttentionWriter::write_tile_bounds() {
  add_lines(extras_.tile_lines(place(), bounds_));
  if (extras_.drops()) add_lines(extras_.seed_lines());
  const std::string row = fmt::format("min(row0 + lane_row, {}u)", owned_ - 1);
  if (extras_.has_spans())
    line(fmt::format("let span_first = {}; let span_end = {};", extras_.span(row, 0), extras_.span(row, 1)));
  // A count that compilers know makes them unroll the loop, and registers no longer suffice.
  line(fmt::format("let turns = tiles * {}u + workgroup.z;", walks_members() ? members() : 1));
}

// Hides scores <name><i> of the chunk that begins at row `first` of the others, where the mask or the end does.
void MatrixAttentionWriter::write_mask(const std::string& name, const std::string& first) {
  const auto other = [&](int i) { return fmt::format("{} + 2u * part + {}u", first, key_of(i)); };
  // Scores are not scaled yet.
  const std::string owned = "(row0 + lane_row)";
  if (extras_.reads_fours()) {
    const int each = 4 / lanes();  // of a thread in a four
    for (int i = 0; i < values(); i += each) {
      line(fmt::format("let four{} = {};", i, extras_.four(owned, fmt::format("({} + {}u)", first, i * lanes()))));
      for (int e = 0; e < each; ++e) {
        const std::string four = fmt::format("four{}", i);
        std::string value = extras_.of_four(four, e);
        if (lanes() == 2) value = fmt::format("select({}, {}, part == 1u)", value, extras_.of_four(four, e + 2));
        line(extras_.masked_by(fmt::format("{}{}", name, i + e), value, 1 / kernel_.scale));
      }
    }
  } else if (extras_.has_mask()) {
    for (int i = 0; i < values(); ++i)
      line(extras_.masked(fmt::format("{}{}", name, i), owned, fmt::format("({})", other(i)), 1 / kernel_.scale));
  }
  if (extras_.has_spans())
    for (int i = 0; i < values(); ++i)
      line(fmt::format("if (i32({0}) < span_first || i32({0}) >= span_end) {{ {1}{2} = {3}; }}", other(i), name, i,
                       kHidden));
  const bool ragged = others_ % 16 != 0 || others_ % block_.tile != 0;
  std::string crossing;
  const auto or_if = [&](const std::string& condition) { crossing += (crossing.empty() ? "" : " || ") + condition; };
  if (bounds_.has_most) or_if(fmt::format("i32({}) + 15i > i32(row0) + i32({})", first, bounds_.most));
  if (bounds_.has_least)
    or_if(fmt::format("i32({}) < i32(row0) + i32({})", first, block_.subgroup_rows - 1 + bounds_.least));
  if (ragged) or_if(fmt::format("{} + 16u > {}u", first, others_));
  if (crossing.empty()) return;
  line(fmt::format("if ({}) {{", crossing));
  line(fmt::format("  let apart = i32(row0 + lane_row) - i32({} + 2u * part);", first));
  if (ragged) line(fmt::format("  let left = {}i - i32({} + 2u * part);", others_, first));
  for (int i = 0; i < values(); ++i) {
    std::string hidden;
    const auto add = [&](const std::string& condition) { hidden += (hidden.empty() ? "" : " || ") + condition; };
    if (bounds_.has_most) add(fmt::format("i32({}) > apart", key_of(i) - bounds_.most));
    if (bounds_.has_least) add(fmt::format("i32({}) < apart", key_of(i) - bounds_.least));
    if (ragged) add(fmt::format("{}i >= left", key_of(i)));
    line(fmt::format("  if ({}) {{ {}{} = {}; }}", hidden, name, i, kHidden));
  }
  line("}");
}

// Bit i of `kept` says whether the share of score i of the chunk is kept. Two scores have bytes of one word of Philox, and the
// neighbouring thread needs the same words: each computes half of them, where subgroups let them exchange.
void MatrixAttentionWriter::write_kept(const std::string& first) {
  const auto other = [&](const std::string& pair) {
    return fmt::format("({} + 2u * part + {}u * ({}))", first, lanes() == 1 ? 2 : 4, pair);
  };
  const int pairs = values() / 2, step = shares_words() ? 2 : 1;
  const auto keep = [&](const std::string& bits, const std::string& pair) {
    for (int e = 0; e < 2; ++e)
      line(fmt::format("kept |= select(0u, 1u << (2u * ({}) + {}u), (({} >> byte{}) & 255u) >= {}u);", pair, e, bits, e,
                       kernel_.dropped));
  };
  line("var kept = 0u;");
  for (int e = 0; e < 2; ++e)
    line(fmt::format("let byte{} = {};", e, extras_.byte_of("lane_row", fmt::format("{}u", e))));
  line(fmt::format("for (var n = 0u; n < {}u; n += {}u) {{", pairs, step));
  if (shares_words()) {
    line("let mine = n + (lane & 1u);");
    line(fmt::format("let bits = {};", extras_.word("row0 + lane_row", other("mine"))));
    line("let others_bits = subgroupShuffleXor(bits, 1u);");
    keep("bits", "mine");
    keep("others_bits", "mine ^ 1u");
  } else {
    line(fmt::format("let bits = {};", extras_.word("row0 + lane_row", other("n"))));
    keep("bits", "n");
  }
  line("}");
}

std::string MatrixAttentionWriter::kept(const std::string& value, int i) const {
  return extras_.drops() ? fmt::format("select(0f, {}, (kept & {}u) != 0u)", value, 1u << i) : value;
}

// Whether the subgroup sees anything of `count` rows from `first` on; empty if it always may.
std::string MatrixAttentionWriter::is_visible(const std::string& first, int count, bool least) const {
  std::string visible;
  if (bounds_.has_most)
    visible = fmt::format("i32({}) <= i32(row0) + i32({})", first, block_.subgroup_rows - 1 + bounds_.most);
  if (least && bounds_.has_least)
    visible += fmt::format("{}i32({}) + {}i >= i32(row0) + i32({})", visible.empty() ? "" : " && ", first, count - 1,
                           bounds_.least);
  return visible;
}

}  // namespace weft::webgpu::attention
