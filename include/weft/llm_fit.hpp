// How much memory a language model needs, before it is loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "weft/llm.hpp"

namespace weft::llm {

/// Bytes on the device.
struct MemoryNeed {
  std::uint64_t weights = 0;  ///< in the layout that the device's products read
  std::uint64_t cache = 0;    ///< keys and values of all positions of all sequences
  std::uint64_t states = 0;   ///< of layers that keep states
  std::uint64_t passes =
      0;  ///< activations and scratch of the largest pass over a prompt and of a pass over one token, as planned
  std::uint64_t total() const { return weights + cache + states + passes; }
};

/// The part of one device of a model that is divided over several.
struct FitPart {
  Device device;
  Extent first_layer = 0, layers = 0;
  MemoryNeed need;
  std::optional<std::uint64_t> available;  ///< as that of the report
  bool fits = true;
};

/// A change that makes a model smaller.
struct FitChange {
  std::string change;       ///< "--cache q8"
  std::uint64_t bytes = 0;  ///< that the model needs after the change
  bool fits = false;
};

/// Values that a device must hold in one buffer: matrices and caches.
struct LargestBuffer {
  std::string name;
  std::uint64_t bytes = 0;
  std::uint64_t limit = 0;  ///< of a buffer, and of what a kernel sees of it, as the device reports them; 0: none
};

struct FitReport {
  Device device;               ///< the first, of several
  std::vector<FitPart> parts;  ///< one for each device
  Extent context = 0;          ///< positions of a sequence
  int sequences = 1;
  CacheType cache = CacheType::f32;
  MemoryNeed need;          ///< of all devices together
  std::uint64_t tower = 0;  ///< of the weights, those of the part that sees images, which is on the first device
  /// Bytes that the model may take: `device_memory` of the options, or else the free memory of the host for the CPU. A GPU does
  /// not report its memory; the value is then empty. Of several devices the sum, if each is known; parts on the CPU share the
  /// memory of the host.
  std::optional<std::uint64_t> available;
  LargestBuffer largest;  ///< of all parts; one that its device does not take, if there is any
  /// Whether nothing that is known is too large: neither the whole need, if `available` is known, nor the largest buffer. Of
  /// several devices, whether every part fits.
  bool fits = true;
  /// Of one device, if the model does not fit: changes that make it smaller, and whether each suffices.
  std::vector<FitChange> changes;

  /// A table for people.
  std::string to_string() const;
};

/// The memory that `load` of the same path and options would take. The configuration and the names, types and shapes of tensors are read and
/// checked; no weight is. Passes are compiled for the device, so the plans are those that would run. Without a `context` it is the
/// model's own, which `load` lowers if it does not fit.
/// Of a vision model, the weights of the tower count, those of an mmproj file too; its passes over images do not.
/// Errors: as `load`, except errors of the values of weights, of the tokenizer of a model that reads only texts, and of memory.
FitReport fit(const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace weft::llm
