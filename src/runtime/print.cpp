// Tensors as text: on one line with every digit (to_string), and in rows and columns (operator<<).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>

#include "tensor/block_format.hpp"
#include "tensor/element.hpp"
#include "weft/tensor.hpp"

namespace weft {
namespace {

constexpr Extent kPrintedMax = 1000, kEdge = 3;
constexpr std::string_view kOmitted = "...";

/// The elements of a tensor on the host, and which of them are shown.
class Listing {
 public:
  Listing(const Tensor& x, bool in_rows)
      : shape_(x.shape()), type_(x.dtype()), abbreviate_(x.numel() > kPrintedMax), in_rows_(in_rows) {
    const auto count = static_cast<std::size_t>(x.numel());
    bytes_.resize(bytes_of(type_, count));
    x.copy_to(bytes_.data(), bytes_.size());
    if (is_block(type_)) {
      std::vector<float> values(count);
      dequantise(type_, bytes_, values);
      bytes_.resize(count * sizeof(float));
      std::memcpy(bytes_.data(), values.data(), bytes_.size());
      type_ = DType::f32;
    }
    if (in_rows_) measure(0, 0);
  }
  void print(std::string& out) const { print(out, 0, 0); }

 private:
  std::string text(Extent i) const {
    const auto at = static_cast<std::size_t>(i);
    const bool is_real = compute_type(type_) == DType::f32 || type_ == DType::f64;
    return in_rows_ && is_real && !std::isnan(read_element(type_, bytes_.data(), at))
               ? fmt::format("{:.6g}", read_element(type_, bytes_.data(), at))
               : element_text(type_, bytes_.data(), at);
  }
  Extent stride(int axis) const {
    Extent n = 1;
    for (int i = axis + 1; i < shape_.rank(); ++i) n *= shape_[i];
    return n;
  }
  /// Calls visit(i) for the shown positions along an axis, and visit(-1) for the omitted ones between them.
  template <class Visit>
  void each(int axis, Visit visit) const {
    const Extent n = shape_[axis];
    const bool cut = abbreviate_ && n > 2 * kEdge;
    for (Extent i = 0; i < n; ++i) {
      if (cut && i == kEdge) {
        visit(-1);
        i = n - kEdge;
      }
      visit(i);
    }
  }
  void measure(int axis, Extent offset) {
    if (axis == shape_.rank()) {
      width_ = std::max(width_, text(offset).size());
      return;
    }
    each(axis, [&](Extent i) {
      if (i >= 0) measure(axis + 1, offset + i * stride(axis));
    });
  }
  void print(std::string& out, int axis, Extent offset) const {
    if (axis == shape_.rank()) {
      out += fmt::format("{:>{}}", text(offset), width_);
      return;
    }
    const int inner = in_rows_ ? shape_.rank() - axis - 1 : 0;  // the rank of an entry that gets separate lines
    bool first = true;
    out += "[";
    each(axis, [&](Extent i) {
      if (!first)
        out += inner > 0 ? "," + std::string(static_cast<std::size_t>(inner), '\n') +
                               std::string(static_cast<std::size_t>(axis) + 1, ' ')
                         : ", ";
      first = false;
      if (i < 0)
        out += kOmitted;
      else
        print(out, axis + 1, offset + i * stride(axis));
    });
    out += "]";
  }

  Shape shape_;
  DType type_;
  bool abbreviate_, in_rows_;
  std::vector<std::byte> bytes_;
  std::size_t width_ = 0;
};

}  // namespace

std::string Tensor::to_string(Where where) const {
  std::string out = fmt::format("{} {} ", name_of(dtype(where)), shape(where).to_string());
  Listing(*this, /*in_rows=*/false).print(out);
  return out;
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  std::string text;
  if (!x.defined()) return out << "(no value)";
  Listing(x, /*in_rows=*/true).print(text);
  return out << text << "  " << name_of(x.dtype()) << ' ' << x.shape().to_string();
}

}  // namespace weft
