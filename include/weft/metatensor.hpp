// Metatensor: safetensors files with a schema. They hold tensors of every type of Weft, in nested structs, data sets of records,
// and blobs. docs/metatensor.md describes the format.
//
//   metatensor::Writer()
//       .tensor("layers.0.weight", weight)
//       .records("samples", typedefs::Layout(sample_schema), samples)
//       .save("model.metatensor");
//   const metatensor::File file = metatensor::File::open("model.metatensor");  // maps the file, reads the header
//   file.tensor("layers.0.weight");                                            // on the CPU without a copy
//   file.tensor("samples.17.pixels");
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/device.hpp"
#include "weft/format_error.hpp"
#include "weft/tensor.hpp"
#include "weft/typedef.hpp"

namespace weft::metatensor {

/// flat: a tensor. structure: named fields of any kind. records: structs of one layout, one after another. blob: entries of any
/// length.
enum class Kind : std::uint8_t { flat, structure, records, blob };

struct Field;

/// A node of a file's schema.
struct Node {
  Kind kind = Kind::structure;
  DType dtype = DType::f32;                ///< flat
  Shape shape;                             ///< flat
  std::vector<Field> fields;               ///< structure
  std::uint64_t count = 0;                 ///< records, or entries of a blob
  std::optional<typedefs::Layout> layout;  ///< records
  std::uint64_t alignment = 4;             ///< of the data, a power of two up to 256
  bool is_optional = false;                ///< readers of this schema take files without it

  /// The field of a structure, or null.
  const Node* find(std::string_view name) const;
};
struct Field {
  std::string name;
  Node node;
};

/// Nodes with the default alignment: of a tensor its element, and 4 at least; of records 16 at least. Errors: UsageError for an
/// alignment that is not a power of two up to 256.
Node flat(DType dtype, Shape shape, std::uint64_t alignment = 0);
Node records(typedefs::Layout layout, std::uint64_t count, std::uint64_t alignment = 0);
Node blob(std::uint64_t count, std::uint64_t alignment = 0);
Node structure(std::vector<Field> fields);
/// The same node, which files may lack.
Node optional(Node node);

/// As JSON, in the form that headers have.
Value to_value(const Node& node);
/// The inverse. Errors: UsageError that names the place; typedefs::LayoutError.
Node node_from(const Value& value);

/// From a tree of elements: Struct with Fields (name, optional), Tensor (dtype, shape, align), ArrayOf (count, mode, align) with the
/// element of a layout, Blob (count, align). Errors: as `node_from`, with the path of the element.
Node node_from_elements(const Value& element);

/// A difference between two versions of a schema. Alignments and counts do not matter.
struct Change {
  enum class Kind : std::uint8_t { added, removed, changed };
  Kind kind = Kind::added;
  std::string path;     ///< "layers.0.weight"; within records "samples.label"
  Value before, after;  ///< the nodes; null where there is none
};
/// Changes of the older schema's parts in their order, then the parts that the newer one adds.
std::vector<Change> difference(const Node& older, const Node& newer);

/// A file, open for reading. Paths have dots between names: "layers.0.weight" for a tensor, "samples.17.pixels" for a field of a
/// record, "images.3" for an entry of a blob. Copies share the mapping. Thread safety: any number of threads may use one.
class File {
 public:
  /// Maps the file and reads its header only. A safetensors file without a schema is a struct of its tensors. Errors: FormatError
  /// for the first broken rule; FileError if it cannot be read.
  static File open(const std::filesystem::path& path);
  /// Reads memory that must outlive the result. `source` names it in messages.
  static File parse(std::span<const std::byte> bytes, std::string source);

  /// Whether the file has a schema of its own.
  bool has_schema() const;
  const Node& schema() const;
  /// Texts of the header, without the schema.
  const std::map<std::string, std::string>& metadata() const;
  /// Paths of all tensors, records and blobs, in the order of their data.
  const std::vector<std::string>& paths() const;
  /// The node at a path. Errors: FileError that names what is near, if there is none.
  const Node& at(std::string_view path) const;

  /// Where a tensor, the records, one record, one of its fields, the data of a blob, or an entry is, in the data region. Errors:
  /// FileError if there is no such part; typedefs::LayoutError for fields.
  typedefs::Range range(std::string_view path) const;
  /// These bytes, in the mapping.
  std::span<const std::byte> bytes(std::string_view path) const;
  /// Passes them to `put` in pieces, and lets the system drop each piece from memory: data sets may be larger than memory.
  void read(std::string_view path, const std::function<void(std::span<const std::byte>)>& put,
            std::uint64_t piece_bytes = std::uint64_t{4} << 20) const;

  /// A tensor, or a Tensor field of a record. On the CPU it uses the mapped memory if its data is aligned to its elements, and
  /// is copied otherwise; bools, packed types and blocks are copied too. Errors: FileError for other nodes, and for bools other
  /// than 0 and 1; DTypeError if the device lacks the type.
  Tensor tensor(std::string_view path, Device device = default_device()) const;
  /// A record. The view is valid while this file, or a copy of it, is open. Errors: FileError.
  typedefs::View record(std::string_view path, std::uint64_t index) const;
  /// A Tensor field of records [first, first + count) as one tensor [count, ...]. Errors: as `tensor`.
  Tensor column(std::string_view path, std::string_view field, std::uint64_t first, std::uint64_t count,
                Device device = default_device()) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
  friend std::vector<FormatViolation> validate(std::span<const std::byte> bytes, std::string source);
};

/// All broken rules of a file, at most 1000. Reads all data for which there are rules: indices of blobs, records, bools, padding.
/// Errors: FileError if the file cannot be read.
std::vector<FormatViolation> validate(const std::filesystem::path& path);
std::vector<FormatViolation> validate(std::span<const std::byte> bytes, std::string source);

/// Passes data, in pieces of any size.
using Source = std::function<void(const std::function<void(std::span<const std::byte>)>& put)>;

/// Collects what a file will hold, and writes it. Data from a `Source` is asked for while the file is written, in the order in
/// which it was added, so that a file may be larger than memory. Errors of all: UsageError for a path that is taken, is below a
/// tensor, or has an empty name or one that begins with "__".
class Writer {
 public:
  /// The alignment 0 is the default of the node.
  Writer& tensor(std::string_view path, Tensor tensor, std::uint64_t alignment = 0);
  Writer& tensor(std::string_view path, DType dtype, Shape shape, Source data, std::uint64_t alignment = 0);
  /// Errors: typedefs::LayoutError for values that do not fit, and UsageError for layouts without a fixed size, or with
  /// offset-indirect data, which belongs in a blob.
  Writer& records(std::string_view path, const typedefs::Layout& layout, std::span<const Value> values);
  /// `data` gives `layout.stride()` bytes for each record.
  Writer& records(std::string_view path, const typedefs::Layout& layout, std::uint64_t count, Source data);
  Writer& blob(std::string_view path, std::span<const std::string> entries);
  /// `data` gives the entries one after another.
  Writer& blob(std::string_view path, std::vector<std::uint64_t> lengths, Source data);
  /// Files may lack the node; see `Reader`.
  Writer& optional(std::string_view path);
  /// A text of the header. Errors: UsageError for the key "metatensor".
  Writer& metadata(std::string_view key, std::string text);

  const Node& schema() const { return schema_; }
  /// Writes the file atomically. Errors: FileError; UsageError if a source gives too few or too many bytes.
  void save(const std::filesystem::path& path) const;

 private:
  struct Item {
    std::string path;
    std::vector<std::uint64_t> lengths;  // of a blob
    Source data;
  };
  void add(std::string_view path, Node node, Source data, std::vector<std::uint64_t> lengths = {});
  Node* find(std::string_view path);

  Node schema_;
  std::vector<Item> items_;
  std::map<std::string, std::string> metadata_;
};

/// Makes of a stored tensor the one that a newer schema has.
using Migration = std::function<Tensor(const Tensor& stored)>;

/// Reads files of other versions of a schema. What the schema has and the file lacks must be optional; what has changed its type
/// needs a migration; what only the file has is ignored.
class Reader {
 public:
  /// Errors: FileError that lists all changes which nothing covers.
  Reader(File file, Node schema, std::map<std::string, Migration> migrations = {});
  const File& file() const { return file_; }
  /// The changes from the file's schema to this one.
  const std::vector<Change>& changes() const { return changes_; }
  /// A tensor of the schema; nothing if it is optional and the file lacks it. Errors: FileError if it is not in the schema, or if a
  /// migration gives another type or shape than the schema has; as File::tensor.
  std::optional<Tensor> tensor(std::string_view path, Device device = default_device()) const;

 private:
  File file_;
  Node schema_;
  std::map<std::string, Migration> migrations_;
  std::vector<Change> changes_;
};

}  // namespace weft::metatensor
