#include "onnx/merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <unordered_map>

#include "graph/describe.hpp"
#include "weft/error.hpp"

namespace weft::onnx {
namespace {

using Attributes = GraphWriter::Attributes;

// Of the symbols, then the quotients.
std::vector<std::string> names_of(std::span<const Symbol> symbols, const TracePoints& points) {
  std::vector<std::string> names;
  for (const Symbol& symbol : symbols) names.push_back(symbol.name);
  for (const Quotient& quotient : points.quotients()) names.push_back(quotient.to_string(names));
  return names;
}

std::vector<std::byte> elements_of(const Tensor& tensor) {
  std::vector<std::byte> bytes(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())));
  tensor.copy_to(bytes.data(), bytes.size());
  return bytes;
}

bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.node() == b.node()) return true;
  return a.dtype() == b.dtype() && a.shape() == b.shape() && elements_of(a) == elements_of(b);
}

bool is_same_op(const RecordStep& a, const RecordStep& b) {
  return a.kind == b.kind && a.type == b.type && a.inputs == b.inputs && a.outputs == b.outputs && a.dtype == b.dtype &&
         a.rank == b.rank && a.integers.size() == b.integers.size();
}

/// A number that depends on the symbols: scale * p, or scale / p.
struct Dependent {
  double scale = 1;
  bool is_reciprocal = false;
  Polynomial p;
};

class Merger {
 public:
  Merger(std::span<const Record> records, const TracePoints& points, std::span<const Symbol> symbols,
         GraphWriter& writer)
      : records_(records),
        points_(points),
        symbols_(symbols),
        names_of_variables_(names_of(symbols, points)),
        writer_(writer) {}

  void write() {
    for (const Record& record : records_)
      if (record.steps().size() != records_[0].steps().size()) {
        // The first step that differs tells more than the number of steps.
        const std::size_t common = std::min(record.steps().size(), records_[0].steps().size());
        for (std::size_t i = 0; i < common; ++i) check_same(i);
        refuse_other_ops(common == 0 ? 0 : common - 1, static_cast<std::size_t>(&record - records_.data()));
      }
    for (std::size_t i = 0; i < records_[0].steps().size(); ++i) {
      check_same(i);
      write(i);
    }
  }

 private:
  const RecordStep& step(std::size_t i, std::size_t record = 0) const { return records_[record].steps()[i]; }

  void check_same(std::size_t i) const {
    const RecordStep& first = step(i);
    for (std::size_t r = 1; r < records_.size(); ++r) {
      const RecordStep& other = step(i, r);
      if (!is_same_op(first, other)) refuse_other_ops(i, r);
      if (first.attributes != other.attributes)
        refuse(i, fmt::format("attributes of {} change between {} and {}", first.type, at(0), at(r)));
    }
  }

  std::string at(std::size_t record) const { return points_.to_string(record, names_of_variables_); }

  [[noreturn]] void refuse(std::size_t i, const std::string& fact, std::string_view otherwise = {}) const {
    const RecordStep& s = step(i);
    throw UsageError(
        graph::describe("onnx::save",
                        fmt::format("{} cannot follow extents that change: {}. Leave the axis out of dynamic_axes{}",
                                    s.op, fact, otherwise),
                        {}, s.where));
  }
  [[noreturn]] void refuse_other_ops(std::size_t i, std::size_t record) const {
    refuse(i, fmt::format("the function is made of other ops for {} than for {}", at(0), at(record)),
           ", or give examples of other extents if two sizes are equal at these");
  }

  template <class Get>
  auto values(std::size_t i, Get get) const {
    std::vector<decltype(get(step(i)))> all;
    for (std::size_t r = 0; r < records_.size(); ++r) all.push_back(get(step(i, r)));
    return all;
  }
  template <class T>
  static bool all_equal(const std::vector<T>& values) {
    return std::all_of(values.begin(), values.end(), [&](const T& v) { return v == values[0]; });
  }

  std::string name_of(const std::string& recorded) const {
    const auto found = names_.find(recorded);
    return found == names_.end() ? recorded : found->second;  // inputs and outputs have names of the model
  }

  // ---- Extents -----------------------------------------------------------------------------------------------------------

  Polynomial extent(std::size_t i, std::size_t place) const {
    const auto all = values(i, [&](const RecordStep& s) { return static_cast<std::int64_t>(s.integers[place]); });
    if (const auto p = points_.polynomial(all)) return *p;
    refuse(i, fmt::format("a size is {} for {} and {} for {}, which is not a sum of products of these extents", all[0],
                          at(0), all.back(), at(all.size() - 1)));
  }
  std::vector<Polynomial> extents(std::size_t i) const {
    std::vector<Polynomial> list;
    for (std::size_t place = 0; place < step(i).integers.size(); ++place) list.push_back(extent(i, place));
    return list;
  }

  // i64 [1].
  std::string variable(int number) {
    const auto k = static_cast<std::size_t>(number);
    std::string& name = variables_written_[k];
    if (!name.empty()) return name;
    if (k < symbols_.size())
      return name = writer_.node("Shape", {symbols_[k].input},
                                 Attributes().integer("start", symbols_[k].axis).integer("end", symbols_[k].axis + 1));
    const Quotient& q = points_.quotients()[k - symbols_.size()];
    return name = writer_.node("Div", {written(q.numerator), writer_.integers({q.divisor})});
  }

  // i64 [1].
  std::string written(const Polynomial& p) {
    if (p.is_constant()) return writer_.integers({p.constant});
    std::string& name = polynomials_[p];
    if (!name.empty()) return name;
    std::string sum;
    for (const Polynomial::Term& t : p.terms) {
      std::string product = t.b < 0 ? variable(t.a) : writer_.node("Mul", {variable(t.a), variable(t.b)});
      if (t.coefficient != 1) product = writer_.node("Mul", {product, writer_.integers({t.coefficient})});
      sum = sum.empty() ? product : writer_.node("Add", {sum, product});
    }
    if (p.constant) sum = writer_.node("Add", {sum, writer_.integers({p.constant})});
    return name = sum;
  }
  // i64 [].
  std::string written_scalar(const Polynomial& p) {
    return writer_.node("Squeeze", {written(p), writer_.integers({0})});
  }

  std::string list(const std::vector<Polynomial>& extents) {
    std::vector<std::string> parts;
    std::vector<Extent> constants;
    const auto flush = [&] {
      if (!constants.empty()) parts.push_back(writer_.integers(constants));
      constants.clear();
    };
    for (const Polynomial& p : extents) {
      if (p.is_constant()) {
        constants.push_back(p.constant);
        continue;
      }
      flush();
      parts.push_back(written(p));
    }
    flush();
    if (parts.empty()) return writer_.integers({});
    return parts.size() == 1 ? parts[0] : writer_.node("Concat", parts, Attributes().integer("axis", 0));
  }

  std::string reshape(std::size_t i) {
    const RecordStep& s = step(i);
    std::vector<Polynomial> shape = extents(i);
    const auto is_open = [](const Polynomial& p) { return !p.is_constant(); };
    const auto is_zero = [](const Polynomial& p) { return p.is_constant() && p.constant == 0; };
    const bool has_zero = std::any_of(shape.begin(), shape.end(), is_zero);
    if (!has_zero && std::count_if(shape.begin(), shape.end(), is_open) == 1)  // the runtime finds the one extent
      *std::find_if(shape.begin(), shape.end(), is_open) = Polynomial{.constant = -1, .terms = {}};
    Attributes attributes;
    if (has_zero) attributes.integer("allowzero", 1);
    return writer_.node("Reshape", {name_of(s.inputs[0]), list(shape)}, attributes);
  }

  // ---- Numbers -------------------------------------------------------------------------------------------------------------

  std::optional<Dependent> dependent(const std::vector<double>& all, DType type) const {
    const auto rounded = [&](double v) { return type == DType::f64 ? v : static_cast<double>(static_cast<float>(v)); };
    for (const bool is_reciprocal : {false, true})
      for (const double scale : {1.0, 2.0, 0.5, -1.0, -2.0, -0.5}) {
        std::vector<std::int64_t> whole;
        for (const double value : all) {
          const double p = std::round(is_reciprocal ? scale / value : value / scale);
          if (!(std::fabs(p) < 0x1p53) || rounded(is_reciprocal ? scale / p : scale * p) != rounded(value)) break;
          whole.push_back(static_cast<std::int64_t>(p));
        }
        if (whole.size() != all.size()) continue;
        if (const auto p = points_.polynomial(whole)) return Dependent{scale, is_reciprocal, *p};
      }
    return {};
  }

  std::string number(std::size_t i) {
    const RecordStep& s = step(i);
    const std::vector<double> all = values(i, [](const RecordStep& each) { return each.value; });
    const auto same = [&](double v) { return v == all[0] || (std::isnan(v) && std::isnan(all[0])); };
    if (std::all_of(all.begin(), all.end(), same)) return writer_.number(s.value, s.dtype);
    const std::optional<Dependent> d = dependent(all, s.dtype);
    if (!d)
      refuse(
          i,
          fmt::format(
              "a number is {} for {} and {} for {}, which is neither a sum of products of these extents nor 1 by one",
              all[0], at(0), all.back(), at(all.size() - 1)));
    const std::string p = written_scalar(d->p);
    const std::string x = s.dtype == DType::i64 ? p : writer_.cast(p, s.dtype);
    if (d->is_reciprocal) return writer_.node("Div", {writer_.number(d->scale, s.dtype), x});
    return d->scale == 1 ? x : writer_.node("Mul", {x, writer_.number(d->scale, s.dtype)});
  }

  // ---- Positions -----------------------------------------------------------------------------------------------------------

  // 0, 1, ... as i64 of rank 1.
  std::string counted(const Polynomial& n) {
    const auto number = [&](double value) { return writer_.number(value, DType::i64); };
    return writer_.node("Range", {number(0), written_scalar(n), number(1)});
  }

  std::string range(std::size_t i) {
    const RecordStep& s = step(i);
    const Polynomial n = extent(i, 1);
    std::vector<Extent> line(static_cast<std::size_t>(s.rank), 1);
    line[static_cast<std::size_t>(s.integers[0])] = n.is_constant() ? n.constant : -1;
    if (!n.is_constant()) return writer_.reshape(writer_.cast(counted(n), s.dtype), line);
    std::vector<std::int32_t> values(static_cast<std::size_t>(n.constant));
    std::iota(values.begin(), values.end(), 0);
    return writer_.initialiser("", s.dtype, Shape(line), std::as_bytes(std::span(values)));
  }

  std::string windows(std::size_t i) {
    const Polynomial count = extent(i, 0), size = extent(i, 1), step_of = extent(i, 2), dilation = extent(i, 3);
    if (!step_of.is_constant() || !dilation.is_constant()) refuse(i, "the distance of windows changes");
    if (count.is_constant() && size.is_constant()) {
      std::vector<Extent> places;
      for (Extent w = 0; w < count.constant; ++w)
        for (Extent j = 0; j < size.constant; ++j) places.push_back(w * step_of.constant + j * dilation.constant);
      return writer_.initialiser("", DType::i64, {count.constant, size.constant}, std::as_bytes(std::span(places)));
    }
    const auto places = [&](const Polynomial& n, const Polynomial& by, const std::vector<Extent>& line) {
      return writer_.node("Mul", {writer_.reshape(counted(n), line), writer_.integers({by.constant})});
    };
    return writer_.node("Add", {places(count, step_of, {-1, 1}), places(size, dilation, {1, -1})});
  }

  std::string stored(std::size_t i) {
    const RecordStep& s = step(i);
    for (std::size_t r = 1; r < records_.size(); ++r)
      if (!same_elements(s.tensor, step(i, r).tensor))
        refuse(i, fmt::format(
                      "the function reads {} {} from memory for {} and {} {} for {}; make it of ops, such as arange",
                      weft::name_of(s.tensor.dtype()), s.tensor.shape().to_string(), at(0),
                      weft::name_of(step(i, r).tensor.dtype()), step(i, r).tensor.shape().to_string(), at(r)));
    return writer_.initialiser(s.label, s.tensor.dtype(), s.tensor.shape(), elements_of(s.tensor));
  }

  void write(std::size_t i) {
    const RecordStep& s = step(i);
    if (s.kind == RecordStep::Kind::node) {
      std::vector<std::string> inputs, outputs;
      for (const std::string& input : s.inputs) inputs.push_back(name_of(input));
      for (const std::string& output : s.outputs) {
        const bool is_own = output.starts_with('\x01');
        outputs.push_back(is_own ? names_[output] = writer_.fresh("") : output);
      }
      return writer_.node(s.type, inputs, outputs, s.attributes);
    }
    if (s.kind == RecordStep::Kind::quotient) return;
    std::string& name = names_[s.outputs[0]];
    switch (s.kind) {
      case RecordStep::Kind::node:
      case RecordStep::Kind::quotient: break;
      case RecordStep::Kind::integers: name = list(extents(i)); break;
      case RecordStep::Kind::number: name = number(i); break;
      case RecordStep::Kind::stored: name = stored(i); break;
      case RecordStep::Kind::reshape: name = reshape(i); break;
      case RecordStep::Kind::range: name = range(i); break;
      case RecordStep::Kind::windows: name = windows(i); break;
    }
  }

  std::span<const Record> records_;
  const TracePoints& points_;
  std::span<const Symbol> symbols_;
  std::vector<std::string> names_of_variables_;
  GraphWriter& writer_;
  std::unordered_map<std::string, std::string> names_;
  std::map<std::size_t, std::string> variables_written_;
  std::map<Polynomial, std::string> polynomials_;
};

}  // namespace

bool has_same_steps(const Record& a, const Record& b) {
  return std::equal(a.steps().begin(), a.steps().end(), b.steps().begin(), b.steps().end(), is_same_op);
}

bool find_quotients(std::span<const Record> records, TracePoints& points) {
  std::vector<Quotient> found;
  for (std::size_t i = 0; i < records[0].steps().size(); ++i) {
    const RecordStep& first = records[0].steps()[i];
    if (first.kind != RecordStep::Kind::quotient) continue;
    std::vector<std::int64_t> numerators;
    for (const Record& record : records) {
      if (i >= record.steps().size() || record.steps()[i].kind != first.kind ||
          record.steps()[i].integers[1] != first.integers[1])
        break;
      numerators.push_back(record.steps()[i].integers[0]);
    }
    if (numerators.size() != records.size()) break;  // writing the records tells what differs
    // A numerator may depend on a quotient that is found next time.
    const std::optional<Polynomial> numerator = points.polynomial(numerators);
    if (!numerator) continue;
    const Quotient rest = Quotient{*numerator, first.integers[1]}.remainder();
    if (!rest.numerator.is_constant()) found.push_back(rest);
  }
  bool any = false;
  for (const Quotient& quotient : found) any = points.add(quotient) || any;
  return any;
}

void write_records(std::span<const Record> records, const TracePoints& points, std::span<const Symbol> symbols,
                   GraphWriter& writer) {
  Merger(records, points, symbols, writer).write();
}

std::vector<GraphWriter::Dim> declared(std::span<const Shape> shapes, const TracePoints& points,
                                       std::span<const Symbol> symbols) {
  std::vector<GraphWriter::Dim> dims;
  for (int axis = 0; axis < shapes[0].rank(); ++axis) {
    std::vector<std::int64_t> values;
    for (const Shape& shape : shapes) values.push_back(shape[axis]);
    const auto p = points.polynomial(values);
    GraphWriter::Dim dim;
    if (p && p->is_constant()) dim.value = p->constant;
    if (p && !p->is_constant()) dim.name = p->to_string(names_of(symbols, points));
    dims.push_back(dim);
  }
  return dims;
}

}  // namespace weft::onnx
