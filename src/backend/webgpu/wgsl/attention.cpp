// Threads stand in rows of 8: all 8 share 4 * groups owned rows, and divide the tile's rows (for scores) and the channels
// (for results) among themselves. Vectors of four hold four owned rows of one score, or four channels of one result.
#include "backend/webgpu/wgsl/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "backend/webgpu/wgsl/scalar.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

using kernel::AttentionKernel;

constexpr int kAcross = 8;  // threads that share owned rows
constexpr Extent kWidthMax = 128;
constexpr const char* kMasked = "-1e30f";  // a score that is hidden: finite, so that differences stay numbers
constexpr double kLog2E = 1.4426950408889634;
constexpr double kCompactAttention = 0x1p28;  // kernels of fewer products are written compactly
// Up to so many queries the gradients of keys and values compute rowsum(dO * O) again, and so need not wait for those of
// the queries.
constexpr Extent kDeltaQueriesMax = 128;

bool computes_delta_twice(const AttentionKernel& kernel) { return kernel.queries <= kDeltaQueriesMax; }

enum class Part { forward, d_query, d_key_value };

/// Sizes of a workgroup's work.
struct Block {
  int rows = 64;       // owned
  int groups = 1;      // groups of four owned rows a thread works on
  int per_thread = 4;  // rows of a tile that a thread scores

  int tile() const { return per_thread * kAcross; }
  int down() const { return rows / (4 * groups); }  // threads along the owned rows
  int threads() const { return down() * kAcross; }
};

// Larger blocks read the other side less often.
constexpr Block kBlocks[] = {{128, 2, 4}, {64, 2, 4}, {64, 1, 4}, {32, 1, 4},
                             {16, 1, 4},  {32, 1, 2}, {16, 1, 2}, {16, 1, 1}};

class AttentionWriter {
 public:
  AttentionWriter(const AttentionKernel& kernel, Part part, const kernel::Operand& delta, const Target& target,
                  Rendered& rendered)
      : kernel_(kernel),
        part_(part),
        delta_operand_(delta),
        target_(target),
        rendered_(rendered),
        bindings_(target, kernel.name) {}

  void render() {
    const bool owns_queries = part_ != Part::d_key_value;
    owned_ = owns_queries ? kernel_.queries : kernel_.keys;
    others_ = owns_queries ? kernel_.keys : kernel_.queries;
    if (kernel_.batch * kernel_.heads * owned_ == 0) return;
    vectors_ = static_cast<int>(divide_up(kernel_.width, 4 * kAcross)) * kAcross;
    pitch_ = vectors_ + 1;  // rows of a tile start in different banks
    choose_block();
    bind();
    const Extent blocks = divide_up(owned_, block_.rows);
    const auto groups = static_cast<std::uint64_t>(kernel_.batch * kernel_.heads * blocks);
    const WorkgroupNumber number = workgroup_number(groups, target_);

    line(fmt::format("let across = {};", modulo("thread", kAcross)));
    line(fmt::format("let down = {};", divided("thread", kAcross)));
    line(fmt::format("let head_number = {};", divided("group", blocks)));
    line(fmt::format("let batch = {};", divided("head_number", kernel_.heads)));
    line(fmt::format("let head = {};", modulo("head_number", kernel_.heads)));
    // Under a causal mask late queries and early keys have the most to do: those start first.
    const std::string block_number = modulo("group", blocks);
    line(owns_queries ? fmt::format("let first = ({}u - {}) * {}u;", blocks - 1, block_number, block_.rows)
                      : fmt::format("let first = {} * {}u;", block_number, block_.rows));
    write_owned();
    if (others_ > 0) {
      write_tile_bounds(owns_queries);
      line("for (var tile = tile_begin; tile < tile_end; tile += 1) {");
      deeper([&] {
        line(fmt::format("let other0 = u32(tile) * {}u;", block_.tile()));
        write_tile();
      });
      line("}");
    }
    write_results();

    std::string text = uses_subgroups_ ? "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n" : "";
    text += bindings_.declarations() + helpers_.text();
    for (const auto& [name, count] : shared_)
      text += fmt::format("var<workgroup> {}: array<vec4f, {}>;\n", name, count);
    if (part_ == Part::d_key_value) text += fmt::format("var<workgroup> row_stats: array<vec2f, {}>;\n", block_.tile());
    text += fmt::format("@compute @workgroup_size({})\nfn main({}) {{\n  let group = {};\n{}{}}}\n", block_.threads(),
                        number.parameters, number.text, number.guard, text_);
    const std::string suffix = part_ == Part::forward ? "" : part_ == Part::d_query ? ".dq" : ".dkv";
    RenderedDispatch dispatch{kernel_.name + suffix, std::move(text), bindings_.ranges(), groups};
    dispatch.beside_previous = part_ == Part::d_key_value && computes_delta_twice(kernel_);
    rendered_.dispatches.push_back(std::move(dispatch));
  }

 private:
  using Tensor = AttentionKernel::Tensor;

  void line(const std::string& text) { text_ += indent_ + text + "\n"; }
  // A kernel that runs for microseconds spends them on fetching its instructions, so there had better be few.
  bool compact() const {
    return static_cast<double>(kernel_.batch * kernel_.heads * kernel_.queries) *
               static_cast<double>(kernel_.keys * kernel_.width) <
           kCompactAttention;
  }
  /// A loop's end. Numbers of threads are below 2^16; compilers cannot tell, and so leave the loop alone.
  std::string end_of(Extent count) const {
    return fmt::format("{}u{}", count, target_.unroll && !compact() ? "" : " + (thread >> 16u)");
  }
  template <class Body>
  void deeper(const Body& body) {
    indent_ += "  ";
    body();
    indent_.resize(indent_.size() - 2);
  }

  int owned_matrices() const { return part_ == Part::forward ? 1 : 2; }

  int workgroup_bytes(const Block& block) const {
    const int rows = owned_matrices() * block.rows + 2 * block.tile();
    return 16 * (rows * pitch_ + block.tile() * (block.rows / 4 + 1) + (needs_exchange() ? block.threads() : 0)) +
           8 * block.tile();
  }

  bool needs_exchange() const { return target_.subgroup_size < kAcross; }

  void choose_block() {
    const Block* best = nullptr;
    for (const Block& block : kBlocks) {
      if (workgroup_bytes(block) > static_cast<int>(target_.limits.workgroup_bytes) ||
          block.threads() > static_cast<int>(target_.limits.workgroup_invocations))
        continue;
      if (block.groups > 1 && part_ != Part::forward) continue;  // backward keeps two results in registers already
      best = &block;
      // Smaller blocks where this one leaves multiprocessors without work.
      const Extent groups = kernel_.batch * kernel_.heads * divide_up(owned_, block.rows);
      if (groups >= target_.multiprocessors * (block.groups > 1 ? 4 : 1)) break;
      if (block.rows == 32 && block.per_thread == 4) break;
    }
    if (!best)
      throw DeviceError(
          fmt::format("webgpu: attention of width {} needs more workgroup memory than the {} bytes of this device",
                      kernel_.width, target_.limits.workgroup_bytes));
    block_ = *best;
  }

  // --- Memory ---------------------------------------------------------------------------------------------------------

  struct Bound {
    const Tensor* tensor = nullptr;
    int handle = -1;
    bool vectors = false;
  };

  Bound bind_tensor(const Tensor& tensor, bool written) {
    Bound bound{&tensor, bindings_.add(tensor.operand, written)};
    bound.vectors = kernel_.width % 4 == 0 && tensor.operand.offset % 4 == 0 && tensor.batch_stride % 4 == 0 &&
                    tensor.head_stride % 4 == 0 && tensor.row_stride % 4 == 0;
    if (bound.vectors) {
      bindings_.want_vectors(bound.handle);
    } else if (written) {
      bindings_.forbid_vectors(bound.handle);
    }
    return bound;
  }

  void bind() {
    for (const Tensor* tensor :
         {&kernel_.q, &kernel_.k, &kernel_.v, &kernel_.o, &kernel_.d_o, &kernel_.d_q, &kernel_.d_k, &kernel_.d_v})
      if (tensor->operand.count > 0 && tensor->operand.type != DType::f32)
        throw DTypeError(
            fmt::format("webgpu: attention of {}: only f32 is computed here", name_of(tensor->operand.type)));
    q_ = bind_tensor(kernel_.q, false);
    k_ = bind_tensor(kernel_.k, false);
    v_ = bind_tensor(kernel_.v, false);
    if (part_ == Part::forward) {
      o_ = bind_tensor(kernel_.o, true);
      logsumexp_ = bindings_.add(kernel_.logsumexp, true);
      bindings_.forbid_vectors(logsumexp_);
    } else {
      d_o_ = bind_tensor(kernel_.d_o, false);
      logsumexp_ = bindings_.add(kernel_.logsumexp, false);
      const bool twice = computes_delta_twice(kernel_);
      if (!twice) {
        delta_ = bindings_.add(delta_operand_, part_ == Part::d_query);
        bindings_.forbid_vectors(delta_);
      }
      if (twice || part_ == Part::d_query) o_ = bind_tensor(kernel_.o, false);
      // Parts that run side by side bind the same ranges: rows of the three may take turns in one buffer.
      if (twice || part_ == Part::d_query) d_q_ = bind_tensor(kernel_.d_q, true);
      if (twice || part_ == Part::d_key_value) {
        d_k_ = bind_tensor(kernel_.d_k, true);
        d_v_ = bind_tensor(kernel_.d_v, true);
      }
    }
    bindings_.resolve();
    for (Bound* bound : {&q_, &k_, &v_, &o_, &d_o_, &d_q_, &d_k_, &d_v_})
      if (bound->tensor) bound->vectors = bound->vectors && bindings_.has_vectors(bound->handle);
  }

  std::string row_start(const Bound& bound, const std::string& row) const {
    const Tensor& t = *bound.tensor;
    return fmt::format("batch * {}u + head * {}u + ({}) * {}u + {}u", static_cast<std::uint32_t>(t.batch_stride),
                       static_cast<std::uint32_t>(t.head_stride), row, static_cast<std::uint32_t>(t.row_stride),
                       bindings_.base(bound.handle));
  }

  /// Four channels, from vector `d`, of a row that exists; channels beyond the width are 0.
  std::string channels(const Bound& bound, const std::string& row, const std::string& d) const {
    if (!bindings_.is_bound(bound.handle)) return "vec4f()";
    const std::string start = row_start(bound, row);
    if (bound.vectors) {
      if (kernel_.width == 4 * vectors_)
        return bindings_.vector(bound.handle, fmt::format("(({}) >> 2u) + {}", start, d));
      return fmt::format(
          "select(vec4f(), {}, {} < {}u)",
          bindings_.vector(bound.handle, fmt::format("(({}) >> 2u) + min({}, {}u)", start, d, kernel_.width / 4 - 1)),
          d, kernel_.width / 4);
    }
    std::string values;
    for (int e = 0; e < 4; ++e) {
      const std::string channel = fmt::format("({} * 4u + {}u)", d, e);
      values +=
          fmt::format("{}select(0f, {}, {} < {}u)", e ? ", " : "",
                      bindings_.load(bound.handle, fmt::format("{} + min({}, {}u)", start, channel, kernel_.width - 1)),
                      channel, kernel_.width);
    }
    return fmt::format("vec4f({})", values);
  }

  /// All threads fill a matrix in workgroup memory with rows [first, first + rows) of a tensor; rows that do not exist are 0.
  void write_fill(const std::string& name, const Bound& bound, int rows, Extent extent, const std::string& first,
                  const std::string& scale = "") {
    line(fmt::format("for (var at = thread; at < {}; at += {}u) {{", end_of(rows * vectors_), block_.threads()));
    deeper([&] {
      line(fmt::format("let row = {};", divided("at", vectors_)));
      line(fmt::format("let d = {};", modulo("at", vectors_)));
      const bool exact = extent % rows == 0;
      std::string value =
          channels(bound, exact ? first + " + row" : fmt::format("min({} + row, {}u)", first, extent - 1), "d");
      if (!exact) value = fmt::format("select(vec4f(), {}, {} + row < {}u)", value, first, extent);
      if (!scale.empty()) value += " * " + scale;
      line(fmt::format("{}[row * {}u + d] = {};", name, pitch_, value));
    });
    line("}");
  }

  std::string declare_shared(const std::string& name, int count) {
    shared_.emplace_back(name, count);
    return name;
  }

  std::string stat_index(int handle, const std::string& row) const {
    return fmt::format("head_number * {}u + {} + {}u", kernel_.queries, row, bindings_.base(handle));
  }

  // --- The owned rows -------------------------------------------------------------------------------------------------

  /// First of the four owned rows of group g, counted in the block.
  std::string row_of(int g) const { return fmt::format("(down + {}u) * 4u", g * block_.down()); }

  std::string literal(double value) { return render_constant(value, DType::f32, helpers_); }

  void write_owned() {
    const bool owns_queries = part_ != Part::d_key_value;
    declare_shared("owned1", block_.rows * pitch_);
    if (owned_matrices() == 2) declare_shared("owned2", block_.rows * pitch_);
    declare_shared("tile1", block_.tile() * pitch_);
    declare_shared("tile2", block_.tile() * pitch_);
    declare_shared("shares", block_.tile() * share_pitch());
    if (needs_exchange()) declare_shared("exchange", block_.threads());
    // Scores come out in units of log 2, ready for exp2.
    write_fill("owned1", owns_queries ? q_ : k_, block_.rows, owned_, "first", literal(kernel_.scale * kLog2E));
    if (owned_matrices() == 2) write_fill("owned2", owns_queries ? d_o_ : v_, block_.rows, owned_, "first");
    for (int g = 0; g < block_.groups; ++g) {
      line(fmt::format("let row{} = first + {};", g, row_of(g)));
      for (int r = 0; r < 4; ++r)
        for (int h = 0; h < columns(); ++h) {
          line(fmt::format("var result{}_{} = vec4f();", g * 4 + r, h));
          if (part_ == Part::d_key_value) line(fmt::format("var second{}_{} = vec4f();", g * 4 + r, h));
        }
      if (part_ == Part::forward) {
        line(fmt::format("var top{} = vec4f({});", g, kMasked));
        line(fmt::format("var total{} = vec4f();", g));
      } else if (part_ == Part::d_query) {
        write_query_stats(g);
      }
    }
  }

  // rowsum(dO * O) of four owned queries, and their logsumexp.
  void write_query_stats(int g) {
    line(fmt::format("var delta{} = vec4f();", g));
    line(fmt::format("var log_sum{} = vec4f();", g));
    for (int r = 0; r < 4; ++r) {
      const std::string row = fmt::format("min(row{} + {}u, {}u)", g, r, kernel_.queries - 1);
      line(fmt::format("for (var d = across; d < {}; d += {}u) {{", end_of(vectors_), kAcross));
      line(fmt::format("  delta{}.{} += dot({}, {});", g, "xyzw"[r], channels(d_o_, row, "d"), channels(o_, row, "d")));
      line("}");
      line(fmt::format("log_sum{}.{} = {} * {};", g, "xyzw"[r], bindings_.load(logsumexp_, stat_index(logsumexp_, row)),
                       literal(kLog2E)));
    }
    write_join(fmt::format("delta{}", g), false);
    if (computes_delta_twice(kernel_)) return;
    for (int r = 0; r < 4; ++r)
      line(fmt::format("if (across == 0u && row{0} + {1}u < {2}u) {{ {3} }}", g, r, kernel_.queries,
                       bindings_.store(delta_, stat_index(delta_, fmt::format("row{} + {}u", g, r)),
                                       fmt::format("delta{}.{}", g, "xyzw"[r]))));
  }

  /// Joins a vector over the threads that share owned rows, by sum or maximum, the same way in each.
  void write_join(const std::string& name, bool maximum) {
    const auto joined = [&](const std::string& other) {
      return maximum ? fmt::format("{0} = max({0}, {1});", name, other) : fmt::format("{0} = {0} + {1};", name, other);
    };
    if (!needs_exchange()) {
      uses_subgroups_ = true;
      for (int distance = 1; distance < kAcross; distance *= 2)
        line(joined(fmt::format("subgroupShuffleXor({}, {}u)", name, distance)));
      return;
    }
    line(fmt::format("exchange[thread] = {};", name));
    line("workgroupBarrier();");
    line(fmt::format("{} = exchange[down * {}u];", name, kAcross));
    for (int i = 1; i < kAcross; ++i) line(joined(fmt::format("exchange[down * {}u + {}u]", kAcross, i)));
    line("workgroupBarrier();");
  }

  // --- Tiles ----------------------------------------------------------------------------------------------------------

  int columns() const { return vectors_ / kAcross; }  // vectors of channels of a thread
  int share_pitch() const { return block_.rows / 4 + 1; }

  // Tiles that hold something the mask shows: query i sees key j when j <= i + keys - queries.
  void write_tile_bounds(bool owns_queries) {
    const Extent tiles = divide_up(others_, block_.tile()), shift = kernel_.keys - kernel_.queries;
    std::string begin = "0i", end = fmt::format("{}i", tiles);
    if (kernel_.causal && owns_queries) {
      const std::string last_key = fmt::format("i32(first) + i32({})", block_.rows - 1 + shift);
      end = fmt::format("clamp(({} + {}i) / {}i, 0i, {}i)", last_key, block_.tile(), block_.tile(), tiles);
    } else if (kernel_.causal) {
      begin = fmt::format("max(i32(first) - i32({}), 0i) / {}i", shift, block_.tile());
    }
    line(fmt::format("let tile_begin = {};", begin));
    line(fmt::format("let tile_end = {};", end));
  }

  /// The rows of a tile that this thread scores.
  std::string other_of(int e) const { return fmt::format("({}u + across)", e * kAcross); }

  // score<g>_<e>: products of four owned rows with row e of a tile.
  void write_scores(const std::string& name, const std::string& owned, const std::string& tile) {
    for (int g = 0; g < block_.groups; ++g)
      for (int e = 0; e < block_.per_thread; ++e) line(fmt::format("var {}{}_{} = vec4f();", name, g, e));
    line(fmt::format("for (var d = 0u; d < {}; d++) {{", end_of(vectors_)));
    deeper([&] {
      for (int e = 0; e < block_.per_thread; ++e)
        line(fmt::format("let y{} = {}[{} * {}u + d];", e, tile, other_of(e), pitch_));
      for (int g = 0; g < block_.groups; ++g) {
        line("{");
        for (int r = 0; r < 4; ++r)
          line(fmt::format("  let x{} = {}[({} + {}u) * {}u + d];", r, owned, row_of(g), r, pitch_));
        for (const char c : std::string_view("xyzw"))
          line(fmt::format("  let c{0} = vec4f(x0.{0}, x1.{0}, x2.{0}, x3.{0});", c));
        for (const char c : std::string_view("xyzw"))
          for (int e = 0; e < block_.per_thread; ++e)
            line(fmt::format("  {0}{1}_{2} = fma(c{3}, vec4f(y{2}.{3}), {0}{1}_{2});", name, g, e, c));
        line("}");
      }
    });
    line("}");
  }

  /// Whether owned rows of group g and row e of the tile see each other; "" if that is certain.
  std::string visible(int g, int e) const {
    const bool owns_queries = part_ != Part::d_key_value;
    std::string text;
    if (others_ % block_.tile() != 0) text = fmt::format("vec4<bool>(other0 + {} < {}u)", other_of(e), others_);
    if (kernel_.causal) {
      const Extent shift = kernel_.keys - kernel_.queries;
      const std::string owned = fmt::format("(vec4i(i32(row{})) + vec4i(0, 1, 2, 3))", g),
                        other = fmt::format("vec4i(i32(other0 + {}))", other_of(e));
      const std::string causal = owns_queries ? fmt::format("({} <= {} + vec4i({}))", other, owned, shift)
                                              : fmt::format("({} <= {} + vec4i({}))", owned, other, shift);
      text = text.empty() ? causal : text + " & " + causal;
    }
    return text;
  }

  std::string hidden_as(const std::string& zero, const std::string& value, int g, int e) const {
    const std::string seen = visible(g, e);
    return seen.empty() ? value : fmt::format("select(vec4f({}), {}, {})", zero, value, seen);
  }

  std::string share_at(int g, int e) const {
    return fmt::format("shares[{} * {}u + down + {}u]", other_of(e), share_pitch(), g * block_.down());
  }

  // result += shares of the owned rows * rows of a tile.
  void write_accumulate(const std::string& result, const std::string& tile) {
    line(fmt::format("for (var other = 0u; other < {}; other++) {{", end_of(block_.tile())));
    deeper([&] {
      for (int h = 0; h < columns(); ++h)
        line(fmt::format("let y{} = {}[other * {}u + across + {}u];", h, tile, pitch_, h * kAcross));
      for (int g = 0; g < block_.groups; ++g) {
        line(fmt::format("let share{} = shares[other * {}u + down + {}u];", g, share_pitch(), g * block_.down()));
        for (int r = 0; r < 4; ++r)
          for (int h = 0; h < columns(); ++h)
            line(fmt::format("{0}{1}_{2} = fma(vec4f(share{3}.{4}), y{2}, {0}{1}_{2});", result, g * 4 + r, h, g,
                             "xyzw"[r]));
      }
    });
    line("}");
  }

  void write_tile() {
    const bool owns_queries = part_ != Part::d_key_value;
    write_fill("tile1", owns_queries ? k_ : q_, block_.tile(), others_, "other0");
    write_fill("tile2", owns_queries ? v_ : d_o_, block_.tile(), others_, "other0");
    if (part_ == Part::d_key_value) {
      // A tile may have more rows than there are threads.
      line(fmt::format("for (var at = thread; at < {}u; at += {}u) {{", block_.tile(), block_.threads()));
      line(fmt::format("  let query = min(other0 + at, {}u);", kernel_.queries - 1));
      std::string delta = "delta";
      if (computes_delta_twice(kernel_)) {
        line("  var delta = 0f;");
        line(fmt::format("  for (var d = 0u; d < {}; d++) {{ delta += dot({}, {}); }}", end_of(vectors_),
                         channels(d_o_, "query", "d"), channels(o_, "query", "d")));
      } else {
        delta = bindings_.load(delta_, stat_index(delta_, "query"));
      }
      line(fmt::format("  row_stats[at] = vec2f({} * {}, {});",
                       bindings_.load(logsumexp_, stat_index(logsumexp_, "query")), literal(kLog2E), delta));
      line("}");
    }
    line("workgroupBarrier();");
    write_scores("score", "owned1", "tile1");
    if (part_ == Part::forward) {
      write_softmax();
      line("workgroupBarrier();");
      write_accumulate("result", "tile2");
    } else {
      write_scores("slope", "owned2", "tile2");
      write_probabilities();
      if (part_ == Part::d_key_value) {
        for_each_share([&](int g, int e) { line(fmt::format("{} = score{}_{};", share_at(g, e), g, e)); });
        line("workgroupBarrier();");
        write_accumulate("second", "tile2");
        line("workgroupBarrier();");
      }
      for_each_share([&](int g, int e) {
        const std::string delta =
            part_ == Part::d_query ? fmt::format("delta{}", g) : fmt::format("vec4f(row_stats[{}].y)", other_of(e));
        line(fmt::format("{} = score{}_{} * (slope{}_{} - {});", share_at(g, e), g, e, g, e, delta));
      });
      line("workgroupBarrier();");
      write_accumulate("result", "tile1");
    }
    line("workgroupBarrier();");
  }

  template <class Visit>
  void for_each_share(const Visit& visit) const {
    for (int g = 0; g < block_.groups; ++g)
      for (int e = 0; e < block_.per_thread; ++e) visit(g, e);
  }

  // The online softmax: what was summed up under a smaller maximum shrinks when a larger one is met.
  void write_softmax() {
    for (int g = 0; g < block_.groups; ++g) {
      line(fmt::format("var next{} = top{};", g, g));
      for (int e = 0; e < block_.per_thread; ++e)
        line(fmt::format("next{0} = max(next{0}, {1});", g, hidden_as(kMasked, fmt::format("score{}_{}", g, e), g, e)));
      write_join(fmt::format("next{}", g), true);
      line(fmt::format("let shrink{0} = exp2(top{0} - next{0});", g));
      line(fmt::format("top{0} = next{0};", g));
      line(fmt::format("total{0} = total{0} * shrink{0};", g));
      for (int e = 0; e < block_.per_thread; ++e) {
        line(fmt::format("score{0}_{1} = {2};", g, e,
                         hidden_as("0f", fmt::format("exp2(score{}_{} - top{})", g, e, g), g, e)));
        line(fmt::format("total{0} = total{0} + score{0}_{1};", g, e));
        line(fmt::format("{} = score{}_{};", share_at(g, e), g, e));
      }
      for (int r = 0; r < 4; ++r)
        for (int h = 0; h < columns(); ++h)
          line(fmt::format("result{0}_{1} = result{0}_{1} * shrink{2}.{3};", g * 4 + r, h, g, "xyzw"[r]));
    }
  }

  void write_probabilities() {
    for_each_share([&](int g, int e) {
      const std::string log_sum =
          part_ == Part::d_query ? fmt::format("log_sum{}", g) : fmt::format("vec4f(row_stats[{}].x)", other_of(e));
      line(fmt::format("score{0}_{1} = {2};", g, e,
                       hidden_as("0f", fmt::format("exp2(score{}_{} - {})", g, e, log_sum), g, e)));
    });
  }

  // --- Results --------------------------------------------------------------------------------------------------------

  void write_rows(const Bound& bound, const std::string& result, int g, const std::string& factor) {
    for (int r = 0; r < 4; ++r) {
      line(fmt::format("if (row{} + {}u < {}u) {{", g, r, owned_));
      deeper([&] {
        line(fmt::format("let at = {};", row_start(bound, fmt::format("row{} + {}u", g, r))));
        for (int h = 0; h < columns(); ++h) {
          const std::string d = fmt::format("(across + {}u)", h * kAcross);
          const std::string name = fmt::format("{}{}_{}", result, g * 4 + r, h);
          line(fmt::format("{0} = {0} * {1};", name, factor + (factor.back() == '.' ? std::string(1, "xyzw"[r]) : "")));
          if (bound.vectors) {
            const std::string store =
                fmt::format("{} = {};", bindings_.vector(bound.handle, fmt::format("(at >> 2u) + {}", d)), name);
            line(kernel_.width == 4 * vectors_ ? store
                                               : fmt::format("if ({} < {}u) {{ {} }}", d, kernel_.width / 4, store));
          } else {
            for (int e = 0; e < 4; ++e)
              line(fmt::format("if ({0} * 4u + {1}u < {2}u) {{ {3} }}", d, e, kernel_.width,
                               bindings_.store(bound.handle, fmt::format("at + {} * 4u + {}u", d, e),
                                               fmt::format("{}.{}", name, "xyzw"[e]))));
          }
        }
      });
      line("}");
    }
  }

  void write_results() {
    for (int g = 0; g < block_.groups; ++g) {
      if (part_ == Part::forward) {
        write_join(fmt::format("total{}", g), false);
        line(fmt::format("let empty{0} = total{0} == vec4f();", g));
        line(fmt::format("let inverse{0} = select(1f / total{0}, vec4f(), empty{0});", g));
        write_rows(o_, "result", g, fmt::format("inverse{}.", g));
        helpers_.use("log_f32");
        for (int r = 0; r < 4; ++r) {
          const char c = "xyzw"[r];
          line(fmt::format(
              "if (across == 0u && row{0} + {1}u < {2}u) {{ {3} }}", g, r, kernel_.queries,
              bindings_.store(logsumexp_, stat_index(logsumexp_, fmt::format("row{} + {}u", g, r)),
                              fmt::format("fma(top{0}.{1}, {2}, log_f32(total{0}.{1}))", g, c, literal(1 / kLog2E)))));
        }
      } else if (part_ == Part::d_query) {
        write_rows(d_q_, "result", g, literal(kernel_.scale));
      } else {
        write_rows(d_k_, "result", g, literal(kernel_.scale));
        write_rows(d_v_, "second", g, "1f");
      }
    }
  }

  const AttentionKernel& kernel_;
  Part part_;
  kernel::Operand delta_operand_;
  const Target& target_;
  Rendered& rendered_;
  Bindings bindings_;
  Helpers helpers_;
  Block block_;
  Extent owned_ = 0, others_ = 0;
  int vectors_ = 0, pitch_ = 0;  // vectors of channels, padded; of a row in workgroup memory
  Bound q_, k_, v_, o_, d_o_, d_q_, d_k_, d_v_;
  int logsumexp_ = -1, delta_ = -1;
  std::vector<std::pair<std::string, int>> shared_;
  bool uses_subgroups_ = false;
  std::string text_, indent_ = "  ";
};

}  // namespace

void render(const AttentionKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered) {
  if (kernel.width > kWidthMax)
    throw DeviceError(
        fmt::format("webgpu: attention of width {} per head; the device computes at most {}", kernel.width, kWidthMax));
  if (!kernel.backward) {
    AttentionWriter(kernel, Part::forward, {}, target, rendered).render();
    return;
  }
  const kernel::Operand delta = computes_delta_twice(kernel)
                                    ? kernel::Operand{}
                                    : scratch.add(DType::f32, kernel.batch * kernel.heads * kernel.queries);
  AttentionWriter(kernel, Part::d_query, delta, target, rendered).render();
  AttentionWriter(kernel, Part::d_key_value, delta, target, rendered).render();
}

}  // namespace weft::webgpu
