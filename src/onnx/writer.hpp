// A graph of ONNX under construction: nodes, initialisers, and names for values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx/wire.hpp"
#include "weft/dtype.hpp"
#include "weft/shape.hpp"

namespace weft::onnx {

inline constexpr std::int64_t kWrittenOpset = 18, kWrittenIr = 8;

/// The number of the type in ONNX. Errors: DTypeError if it has none.
std::int64_t onnx_type(DType type);

class GraphWriter {
 public:
  /// An extent that the model declares: a number, or a name, or neither.
  struct Dim {
    std::optional<Extent> value;
    std::string name;
  };
  /// Attributes of a node.
  class Attributes {
   public:
    Attributes& integer(std::string_view name, std::int64_t value);
    Attributes& integers(std::string_view name, std::span<const std::int64_t> values);
    Attributes& real(std::string_view name, double value);
    bool operator==(const Attributes&) const = default;

   private:
    friend class GraphWriter;
    std::vector<WireWriter> all_;
  };

  /// A node with one output; gives its name.
  std::string node(std::string_view type, std::span<const std::string> inputs, const Attributes& attributes = {});
  std::string node(std::string_view type, std::initializer_list<std::string> inputs,
                   const Attributes& attributes = {}) {
    return node(type, std::span<const std::string>(inputs.begin(), inputs.size()), attributes);
  }
  /// The same with several outputs, or with given names.
  void node(std::string_view type, std::span<const std::string> inputs, std::span<const std::string> outputs,
            const Attributes& attributes = {});
  /// A stored tensor. Gives its name: the one that is wanted, or one like it that is not taken yet.
  std::string initialiser(std::string_view wanted, DType type, const Shape& shape, Bytes elements);
  /// A stored list of integers; equal lists are stored once.
  std::string integers(const std::vector<Extent>& values);
  /// A stored number of rank 0; equal numbers are stored once.
  std::string number(double value, DType type);
  std::string cast(const std::string& x, DType type);
  std::string reshape(const std::string& x, const std::vector<Extent>& shape);

  void input(std::string_view name, DType type, std::span<const Dim> shape) { value(11, name, type, shape); }
  void output(std::string_view name, DType type, std::span<const Dim> shape) { value(12, name, type, shape); }
  std::string fresh(std::string_view like);
  /// Reserves a name. False if it is taken.
  bool take(std::string_view name) { return names_.emplace(name).second; }

  /// The whole file. Errors: FileError beyond 2 GB.
  std::string model() const;

 private:
  void value(std::uint32_t field, std::string_view name, DType type, std::span<const Dim> shape);
  WireWriter graph_;
  std::set<std::string, std::less<>> names_;
  std::map<std::vector<Extent>, std::string> integers_;
  std::map<std::pair<std::uint64_t, DType>, std::string> numbers_;
  std::size_t count_ = 0;
};

}  // namespace weft::onnx
