// Attention on subgroup matrices of f16, with sums and statistics in f32.
//
// A subgroup owns rows (queries; for the gradients of keys and values keys), whose operands stay in right matrices. Products
// of 16 rows of the other side with them are the scores turned around: stored with one row of the other side a line, a
// thread reads what belongs to one owned row (all of 16 scores, or half where a subgroup owns 16 rows), and no two threads
// meet in a bank. Their shares return as halves to the same memory, and from there as left matrices.
//
// Threads of a subgroup exchange through workgroup memory that no other subgroup touches. WGSL promises no order there but
// by barriers: `order` marks the places. They are barriers unless a test has shown that the device needs none
// (TestedFacts::ordered_subgroups).
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "backend/webgpu/wgsl/attention/matrix_block.hpp"
#include "backend/webgpu/wgsl/attention/ranges.hpp"
#include "backend/webgpu/wgsl/attention/writer.hpp"

namespace weft::webgpu::attention {

constexpr const char *kLeftMatrix = "subgroup_matrix_left<f16, 16, 16>",
                     *kRightMatrix = "subgroup_matrix_right<f16, 16, 16>",
                     *kResultMatrix = "subgroup_matrix_result<f32, 16, 16>";

/// A function that says which halves of eight are infinite or NaN: all bits of these are set.
ShaderPieces::Function special_halves();

class MatrixAttentionWriter {
 public:
  /// `delta`: rowsum(dO * O) of each query, read going backward. `ranges`: those of operands that are scaled.
  MatrixAttentionWriter(const kernel::AttentionKernel& kernel, Part part, const kernel::Operand& delta,
                        const Ranges& ranges, const MatrixAttentionBlock& block, const Target& target,
                        Rendered& rendered);
  /// Whether the block fits the device.
  bool fits() const;
  /// Whether it does, and the operands can be bound as vectors of eight.
  bool is_possible();
  void render();

 private:
  /// A tensor of halves, or of numbers of bf16 that are scaled to halves as they are staged, bound as vectors of eight.
  struct Halves {
    const kernel::AttentionKernel::Tensor* tensor = nullptr;
    char name = 'q';
    bool of_keys = false;
    int handle = -1;
  };
  struct Results {
    const kernel::AttentionKernel::Tensor* tensor = nullptr;
    bool of_keys = false;
    int handle = -1;
  };

  void line(const std::string& text) { text_ += "  " + text + "\n"; }
  bool owns_queries() const { return part_ != Part::d_key_value; }
  bool is_forward() const { return part_ == Part::forward; }
  bool strict() const { return !target_.tested.ordered_subgroups; }
  void order() { line(strict() ? "workgroupBarrier();" : "// subgroup order"); }
  void add_lines(const Lines& lines) {
    for (const std::string& text : lines) line(text);
  }
  Extent members() const { return kernel_.heads / kernel_.kv_heads; }
  bool walks_members() const { return attention::walks_members(kernel_, owns_queries()); }
  Place place() const {
    Place place{owns_queries(), block_.rows(), block_.tile, block_.threads(), "begin", "$scores", "u32"};
    if (block_.slices > 1) place.group = "rows_group";
    return place;
  }

  int vectors() const { return 2 * matrices_; }  // of eight channels, padded
  int pitch() const { return vectors() + 1; }    // of a staged row
  int result_matrices() const { return matrices_ / block_.slices; }
  /// What the results of this workgroup have before their channels: text that is added, in `unit`s a matrix.
  std::string slice_begin(int unit) const {
    return block_.slices == 1 ? "" : fmt::format(" + slice * {}u", result_matrices() * unit);
  }
  int row_matrices() const { return block_.subgroup_rows / 16; }
  int lanes() const { return 32 / block_.subgroup_rows; }  // threads that share an owned row
  int values() const { return 16 / lanes(); }              // scores of a thread in a chunk
  int chunks() const { return block_.tile / 16; }
  int score_pitch() const { return (block_.subgroup_rows + 8) / 4; }
  int own_size() const;
  int shares_at() const;  // where forward's shares are, in a subgroup's memory
  int second_at() const;  // going backward: where the second products are, and the slopes that are made of them
  int slopes_at() const;
  bool has_row_values() const { return is_forward() || (part_ == Part::d_query && scales()); }
  int flags() const { return !is_forward() ? 0 : guards() ? 2 : 1; }  // whether to try again, and why
  int workgroup_bytes() const;

  void bind();
  Halves bind_halves(char name, const kernel::AttentionKernel::Tensor& tensor, bool of_keys);
  Results bind_results(const kernel::AttentionKernel::Tensor& tensor, bool of_keys);
  std::string offset(const kernel::AttentionKernel::Tensor& tensor, bool of_keys, Extent base, int by) const;
  std::string eight(const Halves& halves, const std::string& row, const std::string& vector) const;
  /// The same as halves.
  std::string halved(const Halves& halves, const std::string& eight) const;
  std::string stat(int handle, const std::string& row) const;

  bool scales() const { return ranges_.exist(); }
  /// Whether scores are scaled back as they are read: values of a mask are added to them. Else `scaled_scores` does that.
  bool scales_read_scores() const { return scales() && extras_.has_mask(); }
  void write_ranges();
  void write_place();
  void write_tile_bounds();
  void write_kept(const std::string& first);
  /// A share or slope, or 0 where the share of score i is dropped.
  std::string kept(const std::string& value, int i) const;
  bool shares_words() const { return target_.subgroup_size > 0; }
  void write_at(const Halves& halves);
  void write_owned(const Halves& halves, const char* prefix);
  void write_load_place();
  std::string load_row(int i) const;
  std::string load_vector(int i) const;
  int loads() const { return static_cast<int>(divide_up(block_.tile * vectors(), block_.threads())); }
  std::string guarded_load(int i, const std::string& text) const;
  /// The loop over turns up to its work: the tiles of a turn are stored, and those of the next are on their way.
  void write_begin_of_turns();
  void write_turn(const std::string& turn);
  void write_loads(const std::string& turn);
  void write_stores();
  void write_fill(const std::string& first, int rows);
  void write_products(const std::string& into, const char* array, const char* owned, const std::string& row);
  std::vector<std::string> products(const std::string& into, const char* array, const char* owned, int row) const;
  void write_accumulate(const std::string& result, int from, const char* array, int row);
  int key_of(int i) const { return lanes() == 1 ? i : 4 * (i / 2) + i % 2; }
  std::string product(int i, int at) const;
  std::string score(int i) const;
  void write_mask(const std::string& name, const std::string& first);
  std::string is_visible(const std::string& first, int count, bool least) const;
  void write_results(const Results& results, const std::string& name, const std::string& factor);

  void write_forward();
  void write_forward_results();
  void write_first_products();
  void write_reference(const std::string& condition);
  void write_largest();
  void write_join(const std::string& value, const char* function);
  void write_forward_chunk(int chunk);
  /// Whether a subgroup raises its references alone.
  bool rises() const { return !strict(); }
  std::string largest_score() const;
  void write_shares(int eight);
  void write_rise();
  std::string above() const;

  bool guards() const { return is_forward() && kernel_.guards_values; }
  void write_guard();
  void write_cleaned();
  std::string finds_nan(const std::string& place) const;
  void write_next_guarded_attempt();
  void write_specials();

  void write_backward();
  void write_both_chunk(int chunk);
  void write_one_by_one_chunk(int chunk);
  void write_slopes(int chunk, const std::vector<std::string>& between);
  int slope_exponent() const;
  void write_slope_scales();
  std::string scaled_scores() const;

  const kernel::AttentionKernel& kernel_;
  Part part_;
  kernel::Operand delta_operand_;
  Ranges ranges_;
  MatrixAttentionBlock block_;
  const Target& target_;
  Rendered& rendered_;
  Bindings bindings_;
  Helpers helpers_;
  int matrices_ = 0;  // across the channels, padded to whole ones and whole slices
  Extent owned_ = 0, others_ = 0;
  Bounds bounds_;
  Extras extras_;
  Halves own_first_, own_second_, other_first_, other_second_;  // forward: Q, none, K, V
  Results first_, second_;                                      // O; dQ; dK, dV
  int logsumexp_ = -1, delta_ = -1, words_ = -1;
  std::string text_;
};

}  // namespace weft::webgpu::attention
