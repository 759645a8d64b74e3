// Attention on registers: every product is of two slabs in workgroup memory, rows of vectors of four channels.
//
// A workgroup owns rows (queries; for the gradients of keys and values keys) and walks over tiles of the other side. 32 threads
// form a patch of 4 x 8: down they have owned rows, across rows of the tile, and for results vectors of channels. Scores are
// sums over channels, so both operands are read four channels at a time, and shares (probabilities or slopes) return to
// workgroup memory four of the tile's rows at a time; nothing is ever transposed. Vector v of row r is at v ^ (r & 7), so that
// neither eight rows at one v nor eight vectors of one row share a bank.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "backend/webgpu/wgsl/attention/block.hpp"
#include "backend/webgpu/wgsl/attention/place.hpp"
#include "backend/webgpu/wgsl/attention/ranges.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu::attention {

constexpr int kAcross = 8, kDown = 4, kPatch = kAcross * kDown;
constexpr double kLog2E = 1.4426950408889634;
// Up to this many queries, the gradients of keys and values compute rowsum(dO * O) again, so they need not wait for the
// queries' gradients. That takes two more bindings, which masks and the like may need.
constexpr Extent kDeltaQueriesMax = 128;
inline bool computes_delta_twice(const kernel::AttentionKernel& kernel) {
  return kernel.queries <= kDeltaQueriesMax && Extras::bindings_of(kernel) == 0;
}

enum class Part { forward, d_query, d_key_value };

/// The tensors that are staged.
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

/// A tensor of the kernel, bound.
struct Bound {
  const kernel::AttentionKernel::Tensor* tensor = nullptr;
  int handle = -1;
  bool vectors = false, of_keys = false;
};

class AttentionWriter {
 public:
  AttentionWriter(const kernel::AttentionKernel& kernel, Part part, const kernel::Operand& delta, const Target& target,
                  Rendered& rendered, const AttentionBlock* forced, Extent parts = 1);
  /// Only the groups that do not fit halves by these ranges are computed.
  void leave_out_fitting(const Ranges& ranges) { ranges_ = ranges; }
  bool is_possible(const AttentionBlock& block);
  void render();

 private:
  void line(const std::string& text) { text_ += indent_ + text + "\n"; }
  void add_lines(const Lines& lines) {
    for (const std::string& text : lines) line(text);
  }
  template <class Body>
  void deeper(const Body& body) {
    indent_ += "  ";
    body();
    indent_.resize(indent_.size() - 2);
  }
  void measure();
  bool owns_queries() const { return part_ != Part::d_key_value; }
  bool sums_delta() const { return part_ == Part::d_key_value && computes_delta_twice(kernel_); }
  bool needs_exchange() const { return target_.subgroup_size < kAcross; }
  Extent members() const { return kernel_.heads / kernel_.kv_heads; }  // query heads of a key head
  bool walks_members() const { return attention::walks_members(kernel_, owns_queries()); }
  Place place() const {
    return {owns_queries(), block_.rows(),
            block_.tile(),  block_.threads(),
            "first",        fmt::format("$slab{}", buffers_of(block_)[kMatters]),
            "f32",          parts_};
  }

  /// A loop's end. Thread numbers are below 2^16, but compilers do not know this, so they do not unroll the loop.
  static std::string end_of(Extent count) { return fmt::format("{}u + (thread >> 16u)", count); }
  std::string literal(double value) { return render_constant(value, DType::f32, helpers_); }

  int slices() const { return vectors_ / slice_; }
  int share_vectors(const AttentionBlock& block) const { return block.tile() / 4; }

  /// The buffer of each slab, then of the shares.
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
  int buffer_vectors(const AttentionBlock& block, int buffer) const;
  int workgroup_bytes(const AttentionBlock& block) const;
  bool fits(const AttentionBlock& block) const;
  void choose_block(Extent heads);

  /// The products of one tile in order, and the slabs that each must load because its buffer contains another.
  void plan_phases();

  Bound bind_tensor(const kernel::AttentionKernel::Tensor& tensor, bool written);
  void bind();
  const Bound& bound_of(Matter matter) const;

  /// Number of the batch entry of a result.
  std::string batch_of_result() const {
    return parts_ == 1 ? "batch" : fmt::format("(part * {}u + batch)", kernel_.batch);
  }
  /// Index of a row's first channel.
  std::string row_start(const Bound& bound, const std::string& row) const;

  /// Four channels, from vector `d`, of a row that exists; channels beyond the width are 0.
  std::string channels(const Bound& bound, const std::string& row, const std::string& d);
  std::string stat_index(int handle, const std::string& row) const;

  /// Row `row` of a slab, as text, and vector `d` of all channels. Rows beyond the tile's end are 0; such owned rows are
  /// computed and discarded.
  std::string slab_value(Matter matter, const std::string& row, const std::string& d);
  int loads_of(Matter matter) const { return slab_rows(block_, matter) * slice_ / block_.threads(); }
  /// Whether each thread has whole vectors of a slab to load.
  bool is_even(Matter matter) const { return slab_rows(block_, matter) * slice_ % block_.threads() == 0; }

  std::string slab_place(int buffer, const std::string& row, const std::string& d) const {
    return fmt::format("$slab{}[({}) * {}u + ({} ^ (({}) & 7u))]", buffer, row, slice_, d, row);
  }
  std::string load_row(int i) const { return fmt::format("load_row + {}u", i * block_.threads() / slice_); }

  void write_fill(const Phase::Load& load, int slice);
  void write_load(const Phase& phase);
  void write_store(const Phase& phase);

  void write_place();
  /// Owned row i of this thread, counted in the block and in the tensor.
  static std::string own_row(int i) { return fmt::format("(own_down + {}u)", i * kDown); }
  static std::string row_of(int i) { return fmt::format("(first + own_down + {}u)", i * kDown); }

  template <class Visit>
  void for_each_score(const Visit& visit) const {
    for (int i = 0; i < block_.lane_rows; ++i)
      for (int j = 0; j < block_.lane_others; ++j) visit(i, j);
  }
  int columns() const { return vectors_ / kAcross; }  // vectors of channels of a thread's results

  void write_owned();
  void write_query_stats();
  void write_log_sum(const std::string& name, const std::string& row);

  /// Joins values over the threads that share owned rows, by sum or maximum; each thread gets the same result.
  void write_join(const std::vector<std::string>& names, bool maximum);

  void write_turn(const std::string& turn);
  void write_tiles();
  void write_row_stats();
  void write_scores(const Phase& phase, const std::string& name);
  std::string query_of(int j) const;
  static std::string other_of(int j) { return fmt::format("other0 + across + {}u", j * kAcross); }
  void write_mask();
  void write_values_and_spans();
  void write_kept();
  /// A share or slope, or 0 where the share of score i, j is dropped.
  std::string kept(const std::string& value, int i, int j) const;
  void write_shares(const Phase& phase);
  void write_softmax();
  void write_accumulate(const Phase& phase, const std::string& result);

  void write_rows(const Bound& bound, const std::string& result, int i, const std::string& factor);
  void write_results();

  const kernel::AttentionKernel& kernel_;
  Part part_;
  kernel::Operand delta_operand_;
  const Target& target_;
  Rendered& rendered_;
  const AttentionBlock* forced_;
  Ranges ranges_;
  Extent parts_;  // workgroups that share the keys of a row; each writes a result of its own
  Bindings bindings_;
  Helpers helpers_;
  AttentionBlock block_;
  std::vector<Phase> phases_;
  std::vector<Phase::Load> resident_;
  Bounds bounds_;
  Extras extras_;
  Extent owned_ = 0, others_ = 0;
  int vectors_ = 0, slice_ = 0;  // vectors of channels, padded; of those in workgroup memory at one time
  bool interleaved_ = false;
  Bound q_, k_, v_, o_, d_o_, d_q_, d_k_, d_v_;
  int logsumexp_ = -1, delta_ = -1, words_ = -1;
  bool uses_subgroups_ = false;
  std::string text_, indent_ = "  ";
};

}  // namespace weft::webgpu::attention
