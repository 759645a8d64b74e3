// Elements of scans in memory, one by one or four at a time, and values made of them.
#include <fmt/format.h>

#include <utility>

#include "backend/webgpu/wgsl/scan_writer.hpp"

namespace weft::webgpu::scan {

/// Binds the operands, for reading and writing by fours if that is wanted and all of them allow it.
void ScanWriter::bind(bool fours) {
  bindings_ = Bindings(target_, kernel_.name);
  from_.clear(), to_.clear();
  totals_.clear();
  const bool reads = part_ != ScanPart::starts, writes = part_ == ScanPart::whole || part_ == ScanPart::chunks;
  for (const kernel::Operand& operand : kernel_.reads)
    if (reads) from_.push_back(bindings_.add(operand, false));
  for (const kernel::Operand& operand : kernel_.outs)
    if (writes) to_.push_back(bindings_.add(operand, true));
  for (const kernel::Operand& operand : scratch_) {
    totals_.push_back(bindings_.add(operand, !writes));
    bindings_.forbid_vectors(totals_.back());
  }
  fours_ = fours;
  for (const auto& [handles, operands] : {std::pair{&from_, &kernel_.reads}, std::pair{&to_, &kernel_.outs}})
    for (std::size_t k = 0; k < handles->size(); ++k) {
      fours ? bindings_.want_vectors((*handles)[k]) : bindings_.forbid_vectors((*handles)[k]);
      fours_ = fours_ && (*operands)[k].offset % kEach == 0 && (*operands)[k].type != DType::boolean;
    }
  bindings_.resolve();
  for (const std::vector<int>* handles : {&from_, &to_})
    for (const int handle : *handles) fours_ = fours_ && bindings_.has_vectors(handle);
}

// Place of element i (text) of the scan that begins at `start`, a stride of `stride` apart.
std::string ScanWriter::place(const std::string& start, const std::string& i) const {
  return fmt::format("{} + {} * {}u", start, position(i), inner_);
}

Numbers ScanWriter::load(const std::string& at, const std::string& i) const {
  Numbers numbers;
  for (const int from : from_) {
    const std::string value = bindings_.load(from, fmt::format("{} + {}u", at, bindings_.base(from)));
    const bool is_bool = kernel_.reads[numbers.size()].type == DType::boolean;
    numbers.push_back(is_bool ? fmt::format("select(0i, 1i, {})", value) : value);
  }
  if (how_.has_position) numbers.push_back(position(i));
  return numbers;
}

void ScanWriter::store(const std::string& indent, const std::string& at, const std::string& value) {
  for (std::size_t k = 0; k < to_.size(); ++k)
    line(indent + bindings_.store(to_[k], fmt::format("{} + {}u", at, bindings_.base(to_[k])), result(k, value)));
}

/// Variables x<e>_0, x<e>_1 with kEach neighbours of a scan, from element `first` on. Beyond the end they change nothing.
void ScanWriter::declare_fours() {
  for (int e = 0; e < kEach; ++e) declare("  ", fmt::format("x{}_", e), how_.start);
  if (!fours_) {
    for (int e = 0; e < kEach; ++e) {
      const std::string i = fmt::format("(first + {}u)", e);
      line(fmt::format("  if {} < {}u {{", i, n_));
      assign("    ", fmt::format("x{}_", e), load(place("start", i), i));
      line("  }");
    }
    return;
  }
  line(fmt::format("  if (first < {}u) {{", n_));
  for (std::size_t k = 0; k < from_.size(); ++k) {
    line(fmt::format("    let four{} = {};", k, bindings_.load_vector(from_[k], four_at(from_[k]))));
    for (int e = 0; e < kEach; ++e)
      line(fmt::format("    x{}_{} = {};", e, k, bindings_.component(from_[k], fmt::format("four{}", k), lane_of(e))));
  }
  if (how_.has_position)
    for (int e = 0; e < kEach; ++e)
      line(fmt::format("    x{}_{} = {};", e, from_.size(), position(fmt::format("(first + {}u)", e))));
  line("  }");
}

/// Stores y<e>, results of those elements.
void ScanWriter::store_fours() {
  if (!fours_) {
    for (int e = 0; e < kEach; ++e) {
      const std::string i = fmt::format("(first + {}u)", e);
      line(fmt::format("  if {} < {}u {{", i, n_));
      store("    ", place("start", i), fmt::format("y{}_", e));
      line("  }");
    }
    return;
  }
  line(fmt::format("  if (first < {}u) {{", n_));
  for (std::size_t k = 0; k < to_.size(); ++k) {
    std::string values[kEach];
    for (int e = 0; e < kEach; ++e) values[lane_of(e)] = result(k, fmt::format("y{}_", e));
    line("    " + bindings_.store_vector(to_[k], four_at(to_[k]), values));
  }
  line("  }");
}

/// Element `first` of a scan, or in reverse the last of the four.
std::string ScanWriter::four_at(int handle) const {
  const std::string i = a_.reverse ? fmt::format("({}u - first)", n_ - kEach) : "first";
  return fmt::format("start + {} + {}u", i, bindings_.base(handle));
}

std::string ScanWriter::result(std::size_t k, const std::string& value) const {
  const std::string number = value + (how_.gives_second ? "1" : fmt::to_string(k));
  return k == 1 ? fmt::format("bitcast<i32>({})", number) : number;
}

/// Variables NAME0, NAME1 with these numbers.
void ScanWriter::declare(const std::string& indent, const std::string& name, const Numbers& numbers) {
  for (std::size_t k = 0; k < numbers.size(); ++k) line(fmt::format("{}var {}{} = {};", indent, name, k, numbers[k]));
}

void ScanWriter::assign(const std::string& indent, const std::string& name, const Numbers& numbers) {
  for (std::size_t k = 0; k < numbers.size(); ++k) line(fmt::format("{}{}{} = {};", indent, name, k, numbers[k]));
}

/// `to` becomes the combination of `earlier` and `later`, which may be the same variable as `to`.
void ScanWriter::combine(const std::string& indent, const std::string& to, const Numbers& earlier,
                         const Numbers& later) {
  line(indent + "{");
  for (std::size_t k = 0; k < how_.types.size(); ++k) {
    line(fmt::format("{}  let a{} = {};", indent, k, earlier[k]));
    line(fmt::format("{}  let b{} = {};", indent, k, later[k]));
    line(fmt::format("{}  var r{} = {}();", indent, k, how_.types[k]));
  }
  line(indent + "  " + how_.combine);
  for (std::size_t k = 0; k < how_.types.size(); ++k) line(fmt::format("{}  {}{} = r{};", indent, to, k, k));
  line(indent + "}");
}

Numbers ScanWriter::named(const std::string& name) const {
  Numbers numbers;
  for (std::size_t k = 0; k < how_.types.size(); ++k) numbers.push_back(fmt::format("{}{}", name, k));
  return numbers;
}

Numbers ScanWriter::parts_at(const std::string& at) const {
  Numbers numbers;
  for (std::size_t k = 0; k < how_.types.size(); ++k) numbers.push_back(fmt::format("${}[{}]", shared(k), at));
  return numbers;
}

void ScanWriter::put_parts(const std::string& indent, const std::string& name) {
  for (std::size_t k = 0; k < how_.types.size(); ++k)
    line(fmt::format("{}${}[thread] = {}{};", indent, shared(k), name, k));
}

void ScanWriter::carry_parts(int count, const std::string& own, const std::string& place) {
  line(fmt::format("  for (var i = 0u; i < {}u; i++) {{", count));
  line(fmt::format("    if (i == {}) {{", own));
  assign("      ", "sum", named("carried"));
  line("    }");
  combine("    ", "carried", named("carried"), parts_at(place));
  line("  }");
}

}  // namespace weft::webgpu::scan
