// Reading weights in blocks. Their layout: quantised_pack.hpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// Reads a packed matrix by units of 16 bytes: 32, 16, 8 or 4 elements of a row.
class PackedReader {
 public:
  /// `mark` ends the names of its functions.
  PackedReader(BlockType type, const kernel::Operand& words, Extent n, Extent k, Bindings& bindings,
               std::string mark = "");
  Extent units() const { return at_.blocks * form_.value_words() / 4; }                // of a row
  int chunks() const { return static_cast<int>(32 / (form_.value_words() / 4) / 4); }  // of a unit
  int elements() const { return 4 * chunks(); }
  bool has_scales() const { return form_.scales != QuantScales::none; }
  bool has_offset() const { return form_.has_minimum || form_.zero != 0; }
  /// Whether values are integers of at most eight bits, which `word` gives.
  bool has_integers() const { return form_.values == QuantValues::nibble || form_.values == QuantValues::byte; }
  /// Chunks that share a scale.
  int chunks_together() const { return std::min(chunks(), form_.group / 4); }

  /// Number of bindings that it needs.
  int runs() const { return 1 + (form_.planes > 0) + (has_scales() ? 1 : 0) + (form_.scales == QuantScales::coded); }

  /// The bindings that it reads.
  std::vector<int> bindings() const;

  /// Declares the functions `chunk`, which gives the integers or values of a chunk, `word`, which gives integers as signed bytes
  /// of a word, and `scale_at`, which gives their factor and the number to add.
  void declare(ShaderPieces& shader) const;

  /// Statements that define `q` and `high` (with a suffix) of a unit of a row.
  std::string read(const std::string& row, const std::string& unit, const std::string& suffix,
                   const std::string& indent) const;
  /// Scale and offset of chunks from `chunk` on of the unit at place`suffix`.
  std::string scale(const std::string& suffix, const std::string& chunk) const;

 private:
  std::string load(int handle, const std::string& index) const;

  QuantForm form_;
  QuantLayout at_;
  const Bindings& bindings_;
  std::string mark_;
  int values_ = -1, high_ = -1, scales_ = -1, factors_ = -1;
};

}  // namespace weft::webgpu
