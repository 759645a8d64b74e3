// A backend that writes down what a device would do, as shaders, writes of memory and dispatches in order, and computes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "backend/contract.hpp"
#include "backend/webgpu/adapter.hpp"
#include "backend/webgpu/workgroups.hpp"

namespace weft::webgpu {

struct RecordedMemory {
  std::string label;
  std::uint64_t bytes = 0;   // a multiple of 16; begins as zeros
  bool is_computed = false;  // a dispatch has written into it
};
struct RecordedShader {
  std::string name, text;       // WGSL with the entry point `main`, and binding i of group 0 for each of:
  std::vector<bool> read_only;  // one for each binding
  int threads = 1;              // of a workgroup
  std::uint64_t shared_bytes = 0;
  bool subgroups = false;
};
/// Bytes that the host puts into a buffer.
struct RecordedWrite {
  int memory = 0;
  std::uint64_t offset = 0;
  std::vector<std::byte> content;
};
struct RecordedRange {
  int memory = 0;
  std::uint64_t offset = 0, bytes = 0;
};
struct RecordedRun {
  int shader = 0;
  Workgroups workgroups;
  std::vector<RecordedRange> bindings;
};

struct Record {
  std::vector<RecordedMemory> memories;
  std::vector<RecordedShader> shaders;  // each text once
  std::vector<std::variant<RecordedWrite, RecordedRun>> steps;

  /// The place of a buffer in `memories`. InternalError for a buffer of another backend.
  static int place_of(const backend::Buffer& buffer);
};

/// What the host gets when it reads a value that a dispatch would have computed. It gets others as it wrote them.
enum class RecorderReads : std::uint8_t { error, zeros };

/// Kernels are rendered for an adapter of these properties; no adapter is opened. One thread at a time. `error`: reading a
/// computed value is a UsageError.
std::unique_ptr<backend::Backend> make_recorder(const AdapterInfo& adapter, std::shared_ptr<Record> record,
                                                RecorderReads reads = RecorderReads::error);

}  // namespace weft::webgpu
