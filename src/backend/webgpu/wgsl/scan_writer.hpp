// Writes the shaders of scans.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "backend/webgpu/wgsl/render.hpp"
#include "backend/webgpu/wgsl/scalar.hpp"
#include "compile/kernel.hpp"
#include "graph/scan.hpp"

namespace weft::webgpu::scan {

constexpr int kScanThreads = 256;
constexpr int kEach = 4;       // neighbouring elements of a thread
constexpr Extent kStrip = 32;  // neighbouring scans of a workgroup, where each has its elements far apart
constexpr Extent kStretch = kScanThreads * kEach;  // elements of a scan that a workgroup takes at a time

/// A value of a scan: one number, or two, which are scanned together. Texts of them.
using Numbers = std::vector<std::string>;

/// What tells one scan from another.
struct Combination {
  Numbers types;              // of a value's numbers
  Numbers start;              // what combines with any value to that value
  std::string combine;        // statements that set r0 (and r1) from a0 (a1), the earlier value, and b0 (b1)
  bool has_position = false;  // the second number of an element is its position, and the second result has it
  bool gives_second = false;  // the result is the second number
};

/// A long scan is three dispatches: workgroups combine their chunks, one combines what comes before each chunk, and workgroups
/// scan their chunks from there.
enum class ScanPart { whole, totals, starts, chunks };

class ScanWriter {
 public:
  ScanWriter(const kernel::CallKernel& kernel, const Target& target, ScanPart part = ScanPart::whole,
             const std::vector<kernel::Operand>& scratch = {});

  /// Elements of a scan for a workgroup: all of them, or a part of a long one.
  Extent chunk() const;
  bool is_long() const { return chunk() < n_; }
  Extent chunks() const { return outer_ * divide_up(n_, chunk()); }
  /// The types of the numbers of a value.
  std::vector<DType> types() const;

  RenderedDispatch write();

 private:
  // The choice of a shader (scan.cpp).
  Combination combination();
  RenderedDispatch write_part();
  std::string by_thread();
  std::string by_strip();

  // A workgroup for a scan, or for a chunk of it (scan_workgroup.cpp).
  std::string by_workgroup();
  std::string starts();
  void write_sums_before();
  Numbers totals_at(const std::string& at) const;
  void put_totals(const std::string& indent, const std::string& at, const std::string& name);

  // Elements in memory (scan_elements.cpp).
  void bind(bool fours);
  std::string place(const std::string& start, const std::string& i) const;
  std::string position(const std::string& i) const { return a_.reverse ? fmt::format("({}u - {})", n_ - 1, i) : i; }
  Numbers load(const std::string& at, const std::string& i) const;
  void store(const std::string& indent, const std::string& at, const std::string& value);
  void declare_fours();
  void store_fours();
  std::string four_at(int handle) const;
  int lane_of(int e) const { return a_.reverse ? kEach - 1 - e : e; }
  std::string result(std::size_t k, const std::string& value) const;

  // Statements on values.
  void line(const std::string& statement) { text_ += "  " + statement + "\n"; }
  static std::string shared(std::size_t k) { return fmt::format("part{}", k); }
  void declare(const std::string& indent, const std::string& name, const Numbers& numbers);
  void assign(const std::string& indent, const std::string& name, const Numbers& numbers);
  void combine(const std::string& indent, const std::string& to, const Numbers& earlier, const Numbers& later);
  Numbers named(const std::string& name) const;
  Numbers parts_at(const std::string& at) const;
  void put_parts(const std::string& indent, const std::string& name);
  /// All parts in order onto what is carried; `sum` becomes what was carried before part `own`. Part i is at `place`.
  void carry_parts(int count, const std::string& own, const std::string& place);

  const kernel::CallKernel& kernel_;
  const Target& target_;
  const graph::ScanAttributes a_;
  const ScanPart part_;
  const std::vector<kernel::Operand> scratch_;  // a value for each chunk
  Bindings bindings_;
  Extent outer_ = 1, n_ = 1, inner_ = 1;
  int threads_ = kScanThreads;
  bool fours_ = false;  // elements are read and written four at a time
  std::vector<int> from_, to_, totals_;
  std::string type_, text_;
  ShaderPieces shader_;
  Combination how_;
};

}  // namespace weft::webgpu::scan
