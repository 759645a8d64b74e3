// Attention on registers: every product is of two slabs in workgroup memory, rows of vectors of four channels.
//
// A workgroup owns rows (queries; for the gradients of keys and values keys) and walks over tiles of the other side. 32
// threads form a patch of 4 x 8: down they have owned rows, across rows of the tile, and for results vectors of
// channels. Scores are sums over channels, so both operands are read four channels at a time, and shares (probabilities
// or slopes) return to workgroup memory four of the tile's rows at a time; nothing is ever turned. Vector v of row r lies
// at v ^ (r & 7), so that neither eight rows at one v nor eight vectors of one row meet in a bank.
#include "backend/webgpu/wgsl/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "backend/webgpu/wgsl/scalar.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

using kernel::AttentionKernel;

constexpr int kAcross = 8, kDown = 4, kPatch = kAcross * kDown;
constexpr Extent kWidthMax = 256;
constexpr int kResultVectorsMax = 16;  // of a thread: more do not stay in registers
// A hidden score, and the reference of a row that has seen nothing: finite, so that differences are numbers, and so far
// apart that what is hidden weighs nothing.
constexpr const char *kHidden = "-3.4e38f", *kUnseen = "-1e38f";
constexpr float kSlack = 16;  // how far (in units of log 2) scores may pass the reference before sums are rescaled
constexpr double kLog2E = 1.4426950408889634;
// Up to so many queries the gradients of keys and values compute rowsum(dO * O) again, and so need not wait for those of
// the queries.
constexpr Extent kDeltaQueriesMax = 128;

bool computes_delta_twice(const AttentionKernel& kernel) { return kernel.queries <= kDeltaQueriesMax; }

enum class Part { forward, d_query, d_key_value };

// Blocks for heads up to a width, in the order in which they are tried. Larger ones read the other side less often, smaller
// ones fill the device sooner and compute less that the mask hides. Measured on an H200.
struct Choice {
  bool backward;
  Extent width;
  AttentionBlock block;
};
constexpr Choice kChoices[] = {
    {false, 64, {4, 8, 4, 3, true}},  {false, 64, {2, 8, 4, 2, false}}, {false, 128, {2, 8, 8, 3, true}},
    {false, 128, {2, 8, 4, 3, true}}, {false, 256, {2, 8, 8, 3, true}}, {false, 256, {2, 8, 4, 3, true}},
    {true, 64, {4, 8, 8, 2, false}},  {true, 64, {2, 8, 4, 2, false}},  {true, 128, {2, 8, 8, 3, false}},
    {true, 128, {2, 8, 4, 3, false}}, {true, 256, {1, 8, 8, 3, false}},
};
// For little workgroup memory, and for compilers that are slow on what is written out.
constexpr AttentionBlock kSmallBlocks[] = {{4, 4, 2, 3, false, false},
                                           {4, 4, 1, 3, false, false},
                                           {2, 4, 1, 3, false, false},
                                           {1, 4, 1, 3, false, false},
                                           {1, 4, 1, 2, false, false}};
constexpr Extent kBlocksOfRows = 4;  // a block is tried first where the rows are as many blocks

/// What is staged.
enum class Matter { q, k, v, d_o };
constexpr int kMatters = 4;

/// A product over one slice of the channels.
enum class Product { score, slope, result, second };
struct Phase {
  Product product;
  int slice;
  int left, right;  // buffers: of the owned rows or the shares, and of the tile
  struct Load {
    Matter matter;
    int buffer;
  };
  std::vector<Load> loads;  // before it, of that slice
  bool shares = false;      // before it, shares are written
};

class AttentionWriter {
 public:
  AttentionWriter(const AttentionKernel& kernel, Part part, const kernel::Operand& delta, const Target& target,
                  Rendered& rendered, const AttentionBlock* forced)
      : kernel_(kernel),
        part_(part),
        delta_operand_(delta),
        target_(target),
        rendered_(rendered),
        forced_(forced),
        bindings_(target, kernel.name) {}

  bool is_possible(const AttentionBlock& block) {
    measure();
    return fits(block);
  }

  void render() {
    owned_ = owns_queries() ? kernel_.queries : kernel_.keys;
    others_ = owns_queries() ? kernel_.keys : kernel_.queries;
    const Extent heads = owns_queries() ? kernel_.heads : kernel_.kv_heads;
    if (kernel_.batch * heads * owned_ == 0) return;
    measure();
    choose_block(heads);
    plan_phases();
    bind();
    const Extent blocks = divide_up(owned_, block_.rows());
    const auto groups = static_cast<std::uint64_t>(kernel_.batch * heads * blocks);
    const WorkgroupNumber number = workgroup_number(groups, target_);
    write_place(heads, blocks);
    write_owned();
    if (others_ > 0) write_tiles();
    write_results();

    std::string text = uses_subgroups_ ? "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n" : "";
    text += bindings_.declarations() + helpers_.text();
    for (int b = 0; b < block_.buffers; ++b)
      text += fmt::format("var<workgroup> slab{}: array<vec4f, {}>;\n", b, buffer_vectors(block_, b));
    if (needs_exchange()) text += fmt::format("var<workgroup> exchange: array<vec4f, {}>;\n", block_.threads());
    if (sums_delta()) text += fmt::format("var<workgroup> row_stats: array<vec2f, {}>;\n", block_.tile());
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
  template <class Body>
  void deeper(const Body& body) {
    indent_ += "  ";
    body();
    indent_.resize(indent_.size() - 2);
  }
  void measure() {
    vectors_ = static_cast<int>(divide_up(kernel_.width, 4 * kAcross)) * kAcross;
    slice_ = vectors_ % 16 == 0 ? 16 : 8;
  }
  bool owns_queries() const { return part_ != Part::d_key_value; }
  bool sums_delta() const { return part_ == Part::d_key_value && computes_delta_twice(kernel_); }
  bool needs_exchange() const { return target_.subgroup_size < kAcross; }
  Extent members() const { return kernel_.heads / kernel_.kv_heads; }  // query heads of a key head
  bool walks_members() const { return !owns_queries() && members() > 1; }

  /// A loop's end. Numbers of threads are below 2^16; compilers cannot tell, and so leave the loop alone.
  static std::string end_of(Extent count) { return fmt::format("{}u + (thread >> 16u)", count); }
  std::string literal(double value) { return render_constant(value, DType::f32, helpers_); }

  // --- The plan -------------------------------------------------------------------------------------------------------

  int slices() const { return vectors_ / slice_; }
  int share_vectors(const AttentionBlock& block) const { return block.tile() / 4; }

  /// Which buffer holds what: slabs, then the shares.
  std::array<int, kMatters + 1> buffers_of(const AttentionBlock& block) const {
    const bool three = block.buffers == 3;
    switch (part_) {  // q, k, v, dO, shares
      case Part::forward: return {0, 1, three ? 2 : 0, -1, 1};
      case Part::d_query: return {1, 0, three ? 2 : 0, 1, 1};
      case Part::d_key_value: return three ? std::array{0, 2, 2, 1, 2} : std::array{0, 1, 1, 0, 1};
    }
    return {};
  }
  bool is_owned(Matter matter) const { return (matter == Matter::q || matter == Matter::d_o) == owns_queries(); }
  int slab_rows(const AttentionBlock& block, Matter matter) const {
    return is_owned(matter) ? block.rows() : block.tile();
  }
  int buffer_vectors(const AttentionBlock& block, int buffer) const {
    const auto buffers = buffers_of(block);
    int vectors = buffers[kMatters] == buffer ? block.rows() * share_vectors(block) : 0;
    for (int m = 0; m < kMatters; ++m)
      if (buffers[static_cast<std::size_t>(m)] == buffer)
        vectors = std::max(vectors, slab_rows(block, static_cast<Matter>(m)) * slice_);
    return vectors;
  }
  int workgroup_bytes(const AttentionBlock& block) const {
    int bytes = (needs_exchange() ? 16 * block.threads() : 0) + (sums_delta() ? 8 * block.tile() : 0);
    for (int b = 0; b < block.buffers; ++b) bytes += 16 * buffer_vectors(block, b);
    return bytes;
  }
  bool fits(const AttentionBlock& block) const {
    const int results = block.lane_rows * vectors_ / kAcross * (part_ == Part::d_key_value ? 2 : 1);
    return workgroup_bytes(block) <= static_cast<int>(target_.limits.workgroup_bytes) &&
           block.threads() <= static_cast<int>(target_.limits.workgroup_invocations) &&
           (results <= kResultVectorsMax || block.lane_rows == 1);
  }

  void choose_block(Extent heads) {
    if (forced_) {
      block_ = *forced_;
      return;
    }
    const AttentionBlock* best = nullptr;
    // Smaller blocks where this one leaves multiprocessors without work, or is most of the rows.
    const auto try_block = [&](const AttentionBlock& block) {
      if (!fits(block) || (best && block.rows() >= best->rows())) return;
      const bool enough = best && owned_ >= kBlocksOfRows * best->rows() &&
                          kernel_.batch * heads * divide_up(owned_, best->rows()) >= target_.multiprocessors;
      if (!enough) best = &block;
    };
    const Extent width_class = kernel_.width <= 64 ? 64 : kernel_.width <= 128 ? 128 : 256;
    // Software adapters spend long on compiling what is written out.
    if (target_.unroll)
      for (const Choice& choice : kChoices)
        if (choice.backward == kernel_.backward && choice.width == width_class) try_block(choice.block);
    if (!best)
      for (const AttentionBlock& block : kSmallBlocks) try_block(block);
    if (!best)
      throw DeviceError(
          fmt::format("webgpu: attention of width {} needs more workgroup memory than the {} bytes of this device",
                      kernel_.width, target_.limits.workgroup_bytes));
    block_ = *best;
  }

  /// The products of one tile in order, and what each must load because its buffer holds something else.
  void plan_phases() {
    const auto buffers = buffers_of(block_);
    const auto buffer_of = [&](Matter matter) { return buffers[static_cast<std::size_t>(matter)]; };
    std::array<std::pair<int, int>, 3> held;  // matter and slice
    held.fill({-1, -1});
    // A slab of owned rows that has its buffer for itself is loaded once.
    for (int m = 0; m < kMatters; ++m) {
      const int buffer = buffers[static_cast<std::size_t>(m)];
      const bool alone = buffer >= 0 && std::count(buffers.begin(), buffers.end(), buffer) == 1;
      if (alone && slices() == 1 && is_owned(static_cast<Matter>(m))) {
        resident_.push_back({static_cast<Matter>(m), buffer});
        held[static_cast<std::size_t>(buffer)] = {m, 0};
      }
    }
    bool shares = false;
    const auto add = [&](Product product, int slice, int left, int right, std::initializer_list<Matter> wanted) {
      Phase phase{product, slice, left, right, {}, shares};
      if (shares) held[static_cast<std::size_t>(buffers[kMatters])] = {kMatters, 0};
      shares = false;
      for (const Matter matter : wanted) {
        auto& is = held[static_cast<std::size_t>(buffer_of(matter))];
        const std::pair<int, int> needed{static_cast<int>(matter), slice};
        if (is != needed) phase.loads.push_back({matter, buffer_of(matter)});
        is = needed;
      }
      phases_.push_back(std::move(phase));
    };
    const Matter owned1 = owns_queries() ? Matter::q : Matter::k, other1 = owns_queries() ? Matter::k : Matter::q;
    const Matter owned2 = owns_queries() ? Matter::d_o : Matter::v, other2 = owns_queries() ? Matter::v : Matter::d_o;
    for (int s = 0; s < slices(); ++s) add(Product::score, s, buffer_of(owned1), buffer_of(other1), {owned1, other1});
    if (part_ != Part::forward)
      for (int s = 0; s < slices(); ++s) add(Product::slope, s, buffer_of(owned2), buffer_of(other2), {owned2, other2});
    const auto add_results = [&](Product product, Matter matter) {
      shares = true;
      for (int s = slices(); s-- > 0;) add(product, s, buffers[kMatters], buffer_of(matter), {matter});
    };
    if (part_ == Part::forward) add_results(Product::result, Matter::v);
    if (part_ == Part::d_key_value) add_results(Product::second, Matter::d_o);
    if (part_ != Part::forward) add_results(Product::result, owns_queries() ? Matter::k : Matter::q);
  }

  // --- Memory ---------------------------------------------------------------------------------------------------------

  struct Bound {
    const Tensor* tensor = nullptr;
    int handle = -1;
    bool vectors = false, of_keys = false;
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
    bound.of_keys =
        &tensor == &kernel_.k || &tensor == &kernel_.v || &tensor == &kernel_.d_k || &tensor == &kernel_.d_v;
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

  const Bound& bound_of(Matter matter) const {
    switch (matter) {
      case Matter::q: return q_;
      case Matter::k: return k_;
      case Matter::v: return v_;
      case Matter::d_o: return d_o_;
    }
    return q_;
  }

  /// Index of a row's first channel.
  std::string row_start(const Bound& bound, const std::string& row) const {
    const Tensor& t = *bound.tensor;
    return fmt::format("batch * {}u + {} * {}u + {}u + ({}) * {}u", static_cast<std::uint32_t>(t.batch_stride),
                       bound.of_keys ? "kv_head" : "head", static_cast<std::uint32_t>(t.head_stride),
                       bindings_.base(bound.handle), row, static_cast<std::uint32_t>(t.row_stride));
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

  std::string stat_index(int handle, const std::string& row) const {
    return fmt::format("(batch * {}u + head) * {}u + {} + {}u", kernel_.heads, kernel_.queries, row,
                       bindings_.base(handle));
  }

  /// Row `row` of a slab, as text, and vector `d` of all channels. Rows beyond the tile's end are 0; owned ones are computed
  /// and thrown away.
  std::string slab_value(Matter matter, const std::string& row, const std::string& d) {
    const bool owned = is_owned(matter);
    const Extent extent = owned ? owned_ : others_, rows = slab_rows(block_, matter);
    const std::string first = owned ? "first" : "other0";
    std::string value;
    if (extent % rows == 0) {
      value = channels(bound_of(matter), fmt::format("{} + {}", first, row), d);
    } else {
      value = channels(bound_of(matter), fmt::format("min({} + {}, {}u)", first, row, extent - 1), d);
      if (!owned) value = fmt::format("select(vec4f(), {}, {} + {} < {}u)", value, first, row, extent);
    }
    // Scores come out in units of log 2, ready for exp2.
    const bool scaled = owned && matter == (owns_queries() ? Matter::q : Matter::k);
    return scaled ? fmt::format("{} * {}", value, literal(kernel_.scale * kLog2E)) : value;
  }

  int loads_of(Matter matter) const { return slab_rows(block_, matter) * slice_ / block_.threads(); }
  /// Whether each thread has whole vectors of a slab to load.
  bool is_even(Matter matter) const { return slab_rows(block_, matter) * slice_ % block_.threads() == 0; }

  std::string slab_place(int buffer, const std::string& row, const std::string& d) const {
    return fmt::format("slab{}[({}) * {}u + ({} ^ (({}) & 7u))]", buffer, row, slice_, d, row);
  }
  std::string load_row(int i) const { return fmt::format("load_row + {}u", i * block_.threads() / slice_); }

  // Straight to workgroup memory.
  void write_fill(const Phase::Load& load, int slice) {
    const int count = slab_rows(block_, load.matter) * slice_;
    if (block_.written && is_even(load.matter)) {
      for (int i = 0; i < loads_of(load.matter); ++i)
        line(fmt::format("{} = {};", slab_place(load.buffer, load_row(i), "load_vector"),
                         slab_value(load.matter, load_row(i), fmt::format("(load_vector + {}u)", slice * slice_))));
      return;
    }
    line(fmt::format("for (var at = thread; at < {}; at += {}u) {{", end_of(count), block_.threads()));
    line(fmt::format("  let row = {};", divided("at", slice_)));
    line(fmt::format("  let d = {};", modulo("at", slice_)));
    line(fmt::format("  {} = {};", slab_place(load.buffer, "row", "d"),
                     slab_value(load.matter, "row", fmt::format("(d + {}u)", slice * slice_))));
    line("}");
  }

  // To registers, from where write_store takes it.
  void write_load(const Phase& phase) {
    for (std::size_t l = 0; l < phase.loads.size(); ++l)
      for (int i = 0; i < loads_of(phase.loads[l].matter); ++i)
        line(fmt::format(
            "next{}_{} = {};", l, i,
            slab_value(phase.loads[l].matter, load_row(i), fmt::format("(load_vector + {}u)", phase.slice * slice_))));
  }
  void write_store(const Phase& phase) {
    for (std::size_t l = 0; l < phase.loads.size(); ++l)
      for (int i = 0; i < loads_of(phase.loads[l].matter); ++i)
        line(fmt::format("{} = next{}_{};", slab_place(phase.loads[l].buffer, load_row(i), "load_vector"), l, i));
  }

  // --- Places ---------------------------------------------------------------------------------------------------------

  void write_place(Extent heads, Extent blocks) {
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
    // Under a causal mask late queries and early keys have the most to do: those start first, of all heads.
    const Extent all = kernel_.batch * heads;
    line(fmt::format("let head_number = {};", modulo("group", all)));
    const std::string block = divided("group", all);
    line(owns_queries() ? fmt::format("let first = ({}u - {}) * {}u;", blocks - 1, block, block_.rows())
                        : fmt::format("let first = {} * {}u;", block, block_.rows()));
    line(fmt::format("let batch = {};", divided("head_number", heads)));
    if (owns_queries()) {
      line(fmt::format("let head = {};", modulo("head_number", heads)));
      line(fmt::format("let kv_head = {};", divided("head", members())));
    } else {
      line(fmt::format("let kv_head = {};", modulo("head_number", heads)));
      if (!walks_members()) line("let head = kv_head;");
    }
    line(fmt::format("let load_row = {};", divided("thread", slice_)));
    line(fmt::format("let load_vector = {};", modulo("thread", slice_)));
  }
  /// Owned row i of this thread, counted in the block and in the tensor.
  static std::string own_row(int i) { return fmt::format("(own_down + {}u)", i * kDown); }
  static std::string row_of(int i) { return fmt::format("(first + own_down + {}u)", i * kDown); }

  template <class Visit>
  void for_each_score(const Visit& visit) const {
    for (int i = 0; i < block_.lane_rows; ++i)
      for (int j = 0; j < block_.lane_others; ++j) visit(i, j);
  }
  int columns() const { return vectors_ / kAcross; }  // vectors of channels of a thread's results

  void write_owned() {
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
  void write_query_stats() {
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

  // In units of log 2; a query that sees nothing has a finite one.
  void write_log_sum(const std::string& name, const std::string& row) {
    line(fmt::format("let {} = max({}, {} * {});", name, kUnseen,
                     bindings_.load(logsumexp_, stat_index(logsumexp_, row)), literal(kLog2E)));
  }

  /// Joins values over the threads that share owned rows, by sum or maximum, the same way in each.
  void write_join(const std::vector<std::string>& names, bool maximum) {
    const auto joined = [&](const std::string& name, const std::string& other) {
      return maximum ? fmt::format("{0} = max({0}, {1});", name, other) : fmt::format("{0} = {0} + {1};", name, other);
    };
    if (!needs_exchange()) {
      uses_subgroups_ = true;
      for (const std::string& name : names)
        for (const int distance : interleaved_ ? std::array{1, 4, 8} : std::array{1, 2, 4})
          line(joined(name, fmt::format("subgroupShuffleXor({}, {}u)", name, distance)));
      return;
    }
    for (std::size_t n = 0; n < names.size(); n += 4) {
      std::string four;
      for (std::size_t e = n; e < n + 4; ++e)
        four += fmt::format("{}{}", e > n ? ", " : "", e < names.size() ? names[e] : "0f");
      line(fmt::format("exchange[thread] = vec4f({});", four));
      line("workgroupBarrier();");
      line("{");
      line(fmt::format("  let row = thread - lane + (lane & {}u);", 0b10010));  // the lowest thread of these rows
      line("  var all = exchange[row];");
      for (int i = 1; i < kAcross; ++i)
        line("  " + joined("all", fmt::format("exchange[row + {}u]", (i & 1) | ((i & 6) << 1))));
      for (std::size_t e = n; e < std::min(n + 4, names.size()); ++e)
        line(fmt::format("  {} = all.{};", names[e], "xyzw"[e - n]));
      line("}");
      line("workgroupBarrier();");
    }
  }

  // --- Tiles ----------------------------------------------------------------------------------------------------------

  Extent shift() const { return kernel_.keys - kernel_.queries; }
  // Row r of the owned sees o of the others only if r + least_ <= o <= r + most_, as far as the mask has such a bound.
  void set_bounds() {
    const bool window = kernel_.window > 0;
    // A query i stands at key p = i + shift and sees keys from p - window + 1 to p (to p + window - 1 without causality).
    bounds_.has_least = owns_queries() ? window : kernel_.causal || window;
    bounds_.has_most = owns_queries() ? kernel_.causal || window : window;
    const Extent ahead = kernel_.causal ? 0 : kernel_.window - 1, behind = kernel_.window - 1;
    bounds_.least = owns_queries() ? shift() - behind : -shift() - ahead;
    bounds_.most = owns_queries() ? shift() + ahead : -shift() + behind;
  }

  // Tiles that hold something the mask shows.
  void write_tile_bounds() {
    const Extent tiles = divide_up(others_, block_.tile());
    std::string begin = "0i", end = fmt::format("{}i", tiles);
    if (bounds_.has_least)
      begin = fmt::format("clamp(i32(first) + i32({}), 0i, {}i) / {}i", bounds_.least, tiles * block_.tile(),
                          block_.tile());
    if (bounds_.has_most)
      end = fmt::format("clamp(i32(first) + i32({}), 0i, {}i) / {}i", block_.rows() - 1 + bounds_.most + block_.tile(),
                        tiles * block_.tile(), block_.tile());
    line(fmt::format("let tile_begin = u32({});", begin));
    line(fmt::format("let tiles = u32(max({} - i32(tile_begin), 0i));", end));
  }

  // Where turn `turn` reads: its tile and, where several heads share the owned keys, its head.
  void write_turn(const std::string& turn) {
    if (walks_members()) {
      line(fmt::format("let head = kv_head * {}u + {} / tiles;", members(), turn));
      line(fmt::format("let other0 = (tile_begin + {} % tiles) * {}u;", turn, block_.tile()));
    } else {
      line(fmt::format("let other0 = (tile_begin + {}) * {}u;", turn, block_.tile()));
    }
  }

  void write_tiles() {
    set_bounds();
    write_tile_bounds();
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

  // Logsumexp and rowsum(dO * O) of the tile's queries.
  void write_row_stats() {
    line(fmt::format("for (var at = thread; at < {}; at += {}u) {{", end_of(block_.tile()), block_.threads()));
    deeper([&] {
      line(fmt::format("let query = min(other0 + at, {}u);", kernel_.queries - 1));
      line("var delta = 0f;");
      line(fmt::format("for (var d = 0u; d < {}; d++) {{ delta += dot({}, {}); }}", end_of(vectors_),
                       channels(d_o_, "query", "d"), channels(o_, "query", "d")));
      write_log_sum("log_sum", "query");
      line("row_stats[at] = vec2f(log_sum, delta);");
    });
    line("}");
  }

  // score<i>_<j>: products of owned rows with rows of the tile.
  void write_scores(const Phase& phase, const std::string& name) {
    if (phase.slice == 0) {
      for_each_score([&](int i, int j) { line(fmt::format("var {}{}_{} = 0f;", name, i, j)); });
      // What the tile's queries need later: read now, so that it is there by then.
      if (part_ == Part::d_key_value && !sums_delta() && phase.product == Product::slope)
        for (int j = 0; j < block_.lane_others; ++j) {
          line(fmt::format("let query{} = {};", j, query_of(j)));
          write_log_sum(fmt::format("log_sum{}", j), fmt::format("query{}", j));
          line(fmt::format("let delta{} = {};", j,
                           bindings_.load(delta_, stat_index(delta_, fmt::format("query{}", j)))));
        }
    }
    const int written = block_.written ? 4 : 1;
    line(fmt::format("for (var d = 0u; d < {}; d += {}u) {{", end_of(slice_), written));
    deeper([&] {
      for (int u = 0; u < written; ++u) {
        line("{");
        const std::string d = fmt::format("(d + {}u)", u);
        for (int i = 0; i < block_.lane_rows; ++i)
          line(fmt::format("  let a{} = slab{}[{} * {}u + ({} ^ turned{})];", i, phase.left, own_row(i), slice_, d,
                           i % 2));
        line(fmt::format("  let column = {} ^ across;", d));
        for (int j = 0; j < block_.lane_others; ++j) {
          line(fmt::format("  {{ let b = slab{}[across * {}u + column + {}u];", phase.right, slice_,
                           j * kAcross * slice_));
          for (const char c : std::string_view("xyzw"))
            for (int i = 0; i < block_.lane_rows; ++i)
              line(fmt::format("  {0}{1}_{2} = fma(a{1}.{3}, b.{3}, {0}{1}_{2});", name, i, j, c));
          line("  }");
        }
        line("}");
      }
    });
    line("}");
  }

  std::string query_of(int j) const {
    const std::string query = fmt::format("other0 + across + {}u", j * kAcross);
    return others_ % block_.tile() == 0 ? query : fmt::format("min({}, {}u)", query, others_ - 1);
  }

  // Scores that the mask hides, in tiles that have any.
  void write_mask() {
    std::string crossing;
    const auto or_if = [&](const std::string& condition) { crossing += (crossing.empty() ? "" : " || ") + condition; };
    const int rows = kDown * block_.lane_rows;
    if (bounds_.has_most)
      or_if(fmt::format("i32(other0) + {}i > i32(first + own) + i32({})", block_.tile() - 1, bounds_.most));
    if (bounds_.has_least) or_if(fmt::format("i32(other0) < i32(first + own) + i32({})", rows - 1 + bounds_.least));
    if (others_ % block_.tile() != 0) or_if(fmt::format("other0 + {}u > {}u", block_.tile(), others_));
    if (crossing.empty()) return;
    line(fmt::format("if ({}) {{", crossing));
    deeper([&] {
      if (bounds_.has_most || bounds_.has_least) line("let apart = i32(first + own_down) - i32(other0 + across);");
      if (others_ % block_.tile() != 0) line(fmt::format("let left = {}i - i32(other0 + across);", others_));
      for_each_score([&](int i, int j) {
        std::string hidden;
        const auto add = [&](const std::string& condition) { hidden += (hidden.empty() ? "" : " || ") + condition; };
        const int step = j * kAcross - i * kDown;
        if (bounds_.has_most) add(fmt::format("i32({}) > apart", step - bounds_.most));
        if (bounds_.has_least) add(fmt::format("i32({}) < apart", step - bounds_.least));
        if (others_ % block_.tile() != 0) add(fmt::format("{}i >= left", j * kAcross));
        line(fmt::format("if ({}) {{ score{}_{} = {}; }}", hidden, i, j, kHidden));
      });
    });
    line("}");
  }

  // The shares that the phase multiplies: computed on registers, stored once all are done with what lies there.
  void write_shares(const Phase& phase) {
    const bool first_shares = phase.product == (part_ == Part::d_key_value ? Product::second : Product::result);
    if (first_shares) {
      write_mask();
      if (part_ == Part::forward) {
        write_softmax();
      } else {
        for_each_score([&](int i, int j) {
          const std::string log_sum = part_ == Part::d_query ? fmt::format("log_sum{}", i)
                                      : sums_delta()         ? fmt::format("row_stats[across + {}u].x", j * kAcross)
                                                             : fmt::format("log_sum{}", j);
          line(fmt::format("score{0}_{1} = exp2(score{0}_{1} - {2});", i, j, log_sum));
        });
      }
    }
    if (part_ != Part::forward && phase.product == Product::result)
      for_each_score([&](int i, int j) {
        const std::string delta = part_ == Part::d_query ? fmt::format("delta{}", i)
                                  : sums_delta()         ? fmt::format("row_stats[across + {}u].y", j * kAcross)
                                                         : fmt::format("delta{}", j);
        line(fmt::format("score{0}_{1} = score{0}_{1} * (slope{0}_{1} - {2});", i, j, delta));
      });
    line("workgroupBarrier();");
    // Vector q * 8 + across of a row holds this thread's shares of rows (4 q + e) * 8 + across of the tile.
    for (int i = 0; i < block_.lane_rows; ++i)
      for (int q = 0; q < block_.lane_others / 4; ++q)
        line(
            fmt::format("slab{0}[{1} * {2}u + ((across + {3}u) ^ turned{4})] = vec4f(score{5}_{6}, score{5}_{7}, "
                        "score{5}_{8}, score{5}_{9});",
                        phase.left, own_row(i), share_vectors(block_), q * kAcross, i % 2, i, 4 * q, 4 * q + 1,
                        4 * q + 2, 4 * q + 3));
  }

  // The softmax as tiles come: sums refer to what was the largest score when they last were rescaled, which is done only
  // when scores pass it by far.
  void write_softmax() {
    std::vector<std::string> tops;
    std::string excess;
    for (int i = 0; i < block_.lane_rows; ++i) {
      std::string top = fmt::format("score{}_0", i);
      for (int j = 1; j < block_.lane_others; ++j) top = fmt::format("max({}, score{}_{})", top, i, j);
      line(fmt::format("var next_top{} = {};", i, top));
      tops.push_back(fmt::format("next_top{}", i));
      const std::string by = fmt::format("next_top{0} - top{0}", i);
      excess = excess.empty() ? by : fmt::format("max({}, {})", excess, by);
    }
    if (needs_exchange()) {
      write_join(tops, true);
      line("{");
    } else {
      line(fmt::format("if (subgroupAny({} > {})) {{", excess, literal(kSlack)));
    }
    deeper([&] {
      if (!needs_exchange()) write_join(tops, true);
      for (int i = 0; i < block_.lane_rows; ++i) {
        line(fmt::format("next_top{0} = max(next_top{0}, top{0});", i));
        line(fmt::format("let shrink{0} = exp2(top{0} - next_top{0});", i));
        line(fmt::format("top{0} = next_top{0};", i));
        line(fmt::format("total{0} = total{0} * shrink{0};", i));
        for (int h = 0; h < columns(); ++h) line(fmt::format("result{0}_{1} = result{0}_{1} * shrink{0};", i, h));
      }
    });
    line("}");
    for (int i = 0; i < block_.lane_rows; ++i) {
      std::string sum = fmt::format("total{}", i);
      for (int j = 0; j < block_.lane_others; ++j) {
        line(fmt::format("score{0}_{1} = exp2(score{0}_{1} - top{0});", i, j));
        sum += fmt::format(" + score{}_{}", i, j);
      }
      line(fmt::format("total{} = {};", i, sum));
    }
  }

  // result += shares of the owned rows * rows of the tile, for one slice of the channels.
  void write_accumulate(const Phase& phase, const std::string& result) {
    const int quarters = block_.lane_others / 4, written = block_.written ? 8 / quarters / 2 : 1;
    line(fmt::format("for (var n = 0u; n < {}; n += {}u) {{", end_of(kAcross), written));
    deeper([&] {
      for (int u = 0; u < written; ++u) {
        line("{");
        line(fmt::format("  let m = n + {}u;", u));
        line("  let column = across ^ m;");
        for (int q = 0; q < quarters; ++q) {
          line("  {");
          for (int i = 0; i < block_.lane_rows; ++i)
            line(fmt::format("    let a{} = slab{}[{} * {}u + ((m + {}u) ^ turned{})];", i, phase.left, own_row(i),
                             share_vectors(block_), q * kAcross, i % 2));
          for (int e = 0; e < 4; ++e)
            for (int h = 0; h < slice_ / kAcross; ++h) {
              line(fmt::format("    {{ let b = slab{}[m * {}u + column + {}u];", phase.right, slice_,
                               (4 * q + e) * kAcross * slice_ + h * kAcross));
              for (int i = 0; i < block_.lane_rows; ++i)
                line(fmt::format("    {0}{1}_{2} = fma(vec4f(a{1}.{3}), b, {0}{1}_{2});", result, i,
                                 phase.slice * (slice_ / kAcross) + h, "xyzw"[e]));
              line("    }");
            }
          line("  }");
        }
        line("}");
      }
    });
    line("}");
  }

  // --- Results --------------------------------------------------------------------------------------------------------

  void write_rows(const Bound& bound, const std::string& result, int i, const std::string& factor) {
    line(fmt::format("if ({} < {}u) {{", row_of(i), owned_));
    deeper([&] {
      line(fmt::format("let at = {};", row_start(bound, row_of(i))));
      for (int h = 0; h < columns(); ++h) {
        const std::string d = fmt::format("(across + {}u)", h * kAcross);
        const std::string name = fmt::format("{}{}_{}", result, i, h);
        if (!factor.empty()) line(fmt::format("{0} = {0} * {1};", name, factor));
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

  void write_results() {
    if (part_ == Part::forward) {
      std::vector<std::string> totals;
      for (int i = 0; i < block_.lane_rows; ++i) totals.push_back(fmt::format("total{}", i));
      write_join(totals, false);
      helpers_.use("log_f32");
    }
    for (int i = 0; i < block_.lane_rows; ++i) {
      if (part_ == Part::forward) {
        line(fmt::format("let inverse{0} = select(1f / total{0}, 0f, total{0} == 0f);", i));
        write_rows(o_, "result", i, fmt::format("inverse{}", i));
        line(fmt::format("if (across == 0u && {} < {}u) {{ {} }}", row_of(i), kernel_.queries,
                         bindings_.store(logsumexp_, stat_index(logsumexp_, row_of(i)),
                                         fmt::format("fma(top{0}, {1}, log_f32(total{0}))", i, literal(1 / kLog2E)))));
      } else if (part_ == Part::d_query) {
        write_rows(d_q_, "result", i, literal(kernel_.scale));
      } else {
        write_rows(d_k_, "result", i, literal(kernel_.scale));
        write_rows(d_v_, "second", i, "");
      }
    }
  }

  const AttentionKernel& kernel_;
  Part part_;
  kernel::Operand delta_operand_;
  const Target& target_;
  Rendered& rendered_;
  const AttentionBlock* forced_;
  Bindings bindings_;
  Helpers helpers_;
  AttentionBlock block_;
  std::vector<Phase> phases_;
  std::vector<Phase::Load> resident_;
  struct {
    bool has_least = false, has_most = false;
    Extent least = 0, most = 0;
  } bounds_;
  Extent owned_ = 0, others_ = 0;
  int vectors_ = 0, slice_ = 0;  // vectors of channels, padded; of those in workgroup memory at one time
  bool interleaved_ = false;
  Bound q_, k_, v_, o_, d_o_, d_q_, d_k_, d_v_;
  int logsumexp_ = -1, delta_ = -1;
  bool uses_subgroups_ = false;
  std::string text_, indent_ = "  ";
};

}  // namespace

bool is_possible(const AttentionKernel& kernel, const Target& target, const AttentionBlock& block) {
  Rendered rendered;
  const auto fits = [&](Part part) {
    return AttentionWriter(kernel, part, {}, target, rendered, nullptr).is_possible(block);
  };
  return kernel.backward ? fits(Part::d_query) && fits(Part::d_key_value) : fits(Part::forward);
}

void render(const AttentionKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
            const AttentionBlock* block) {
  if (kernel.width > kWidthMax)
    throw DeviceError(
        fmt::format("webgpu: attention of width {} per head; the device computes at most {}", kernel.width, kWidthMax));
  if (!kernel.backward) {
    AttentionWriter(kernel, Part::forward, {}, target, rendered, block).render();
    return;
  }
  const kernel::Operand delta = computes_delta_twice(kernel)
                                    ? kernel::Operand{}
                                    : scratch.add(DType::f32, kernel.batch * kernel.heads * kernel.queries);
  AttentionWriter(kernel, Part::d_query, delta, target, rendered, block).render();
  AttentionWriter(kernel, Part::d_key_value, delta, target, rendered, block).render();
}

}  // namespace weft::webgpu
