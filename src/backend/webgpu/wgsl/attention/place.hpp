// What the writers of attention say alike: which rows a workgroup owns, which rows of the other side these see, and what a mask,
// spans and dropping do to a score.
#pragma once

#include <string>
#include <vector>

#include "backend/webgpu/wgsl/render.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu::attention {

// A hidden score, and the reference of a row that has seen no score. Both are finite, so that differences are numbers, and so
// far apart that hidden scores have weight 0.
constexpr const char *kHidden = "-3.4e38f", *kUnseen = "-1e38f";
/// A logarithm of a sum that leaves no share of any score.
constexpr const char* kNoShares = "3.4e38f";

using Lines = std::vector<std::string>;

/// Row r of the owned sees o of the others only if r + least <= o <= r + most, as far as the mask has such a bound.
struct Bounds {
  bool has_least = false, has_most = false;
  Extent least = 0, most = 0;
};
Bounds bounds_of(const kernel::AttentionKernel& kernel, bool owns_queries);

/// Rows of one head that a workgroup owns, and tiles of the other side.
struct Place {
  bool owns_queries = true;
  Extent rows = 0;  // of a workgroup
  Extent tile = 0;  // rows of the other side
  int threads = 0;
  const char* first = "";       // name of the first owned row
  std::string memory = {};      // an array of a vec4 for each owned row
  const char* number = "";      // type of its components
  Extent parts = 1;             // of the tiles, one for each workgroup that owns the rows; `part` is its number
  const char* group = "group";  // name of the workgroup's number
};
/// Declares the first owned row, `batch`, `kv_head` and (unless a workgroup walks over several) `head`.
Lines place_lines(const kernel::AttentionKernel& kernel, const Place& place);
/// Whether each head of keys is owned for several heads of queries.
bool walks_members(const kernel::AttentionKernel& kernel, bool owns_queries);

/// The mask of values, the spans and the dropping of a kernel, bound.
class Extras {
 public:
  Extras(const kernel::AttentionKernel& kernel, bool owns_queries, const Bindings& bindings, Helpers& helpers)
      : kernel_(kernel), owns_queries_(owns_queries), bindings_(bindings), helpers_(helpers) {}
  void bind(Bindings& bindings);
  /// How many storage bindings a kernel needs for them.
  static int bindings_of(const kernel::AttentionKernel& kernel);

  bool has_mask() const { return kernel_.mask.has_value(); }
  bool has_spans() const { return kernel_.key_spans.has_value(); }
  bool drops() const { return kernel_.dropped > 0; }
  /// The factor of shares that are kept.
  double grown() const { return 256.0 / static_cast<double>(256 - kernel_.dropped); }

  /// A statement that adds the mask's value, times `unit`, to score `name`, or hides it. `head` is in scope.
  std::string masked(const std::string& name, const std::string& owned, const std::string& other, double unit) const;
  /// The same with the mask's value given.
  std::string masked_by(const std::string& name, const std::string& value, double unit) const;
  /// Whether the values of four neighbouring keys can be read at once: from a multiple of four on, as `four`, of which
  /// `of_four` gives one.
  bool reads_fours() const;
  std::string four(const std::string& owned, const std::string& other) const;
  std::string of_four(const std::string& four, int lane) const { return bindings_.component(mask_, four, lane); }
  /// `first` and `end` of the rows of the other side that the owned row may see, as i32.
  std::string span(const std::string& owned, int which) const;
  /// Declares `seed` and `stream`.
  Lines seed_lines() const;
  /// The word of Philox that has the bytes of the scores of a pair of owned rows and a pair of others, given a row of each.
  std::string word(const std::string& owned, const std::string& other) const;
  /// The bit of a score's byte in its word.
  std::string byte_of(const std::string& owned, const std::string& other) const;

  /// Declares `tile_begin` and `tiles`, the tiles that have something to see. If there are spans, threads of the workgroup meet in
  /// it, and change Place::memory.
  Lines tile_lines(const Place& place, const Bounds& bounds) const;

 private:
  std::string mask_index(const std::string& owned, const std::string& other) const;

  const kernel::AttentionKernel& kernel_;
  bool owns_queries_;
  const Bindings& bindings_;
  Helpers& helpers_;
  int mask_ = -1, spans_ = -1, seed_ = -1;
};

}  // namespace weft::webgpu::attention
